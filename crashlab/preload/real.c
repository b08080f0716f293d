/*
 * The calls of the next library in the search order, usually libc's.
 *
 * They are looked up by dlsym at the first use and not by a constructor, because constructors of other libraries may
 * run before ours and already open files.
 */
#define _GNU_SOURCE
#include "record.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static struct real_calls calls;
static atomic_bool found;

static void *next(const char *name) {
  void *call = dlsym(RTLD_NEXT, name);
  if (call == NULL) {
    /* Our own write would look up its successor again, so the message goes past it. */
    static const char what[] = "duratune: the recorder finds this call missing in libc: ";
    ssize_t (*out)(int, const void *, size_t);
    *(void **)(&out) = dlsym(RTLD_NEXT, "write");
    if (out != NULL) (void)!out(STDERR_FILENO, what, sizeof what - 1);
    if (out != NULL) (void)!out(STDERR_FILENO, name, strlen(name));
    _exit(71);
  }
  return call;
}

bool is_taken_before(const char *call) {
  static const char own = 0;
  const void *found_first = dlsym(RTLD_DEFAULT, call);
  Dl_info first, ours;
  if (found_first == NULL || dladdr(found_first, &first) == 0 || dladdr(&own, &ours) == 0) return false;
  return first.dli_fbase != ours.dli_fbase;
}

const struct real_calls *real(void) {
  if (atomic_load_explicit(&found, memory_order_acquire)) return &calls;
  /* Two threads may both fill it; they store the same values. ISO C has no cast from void * to a function. */
#define FIND(name) *(void **)(&calls.name) = next(#name)
  FIND(openat);
  FIND(write);
  FIND(pwrite);
  FIND(writev);
  FIND(pwritev);
  FIND(pwritev2);
  FIND(fsync);
  FIND(fdatasync);
  FIND(sync_file_range);
  FIND(syncfs);
  FIND(sync);
  FIND(msync);
  FIND(ftruncate);
  FIND(truncate);
  FIND(fallocate);
  FIND(posix_fallocate);
  FIND(renameat);
  FIND(renameat2);
  FIND(linkat);
  FIND(unlinkat);
  FIND(mkdirat);
  FIND(close);
  FIND(dup);
  FIND(dup2);
  FIND(dup3);
  FIND(fcntl);
  FIND(fopen);
  FIND(fdopen);
  FIND(fclose);
  FIND(closedir);
  FIND(mmap);
  FIND(munmap);
  FIND(syscall);
  FIND(copy_file_range);
  FIND(sendfile);
  FIND(splice);
  FIND(recv);
  FIND(recvfrom);
  FIND(recvmsg);
  FIND(send);
  FIND(sendto);
  FIND(sendmsg);
#undef FIND
  /* Not in glibc before 2.34; nobody calls them there. */
  *(void **)(&calls.close_range) = dlsym(RTLD_NEXT, "close_range");
  *(void **)(&calls.closefrom) = dlsym(RTLD_NEXT, "closefrom");
  atomic_store_explicit(&found, true, memory_order_release);
  return &calls;
}
