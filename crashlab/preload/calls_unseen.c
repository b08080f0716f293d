/*
 * What passes by a preload library: shared mappings, io_uring, direct system calls, copies inside the kernel.
 *
 * Their effect is not recorded. They are counted, so that no verdict is drawn from a log that lacks them.
 */
#define _GNU_SOURCE
#include "record.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- shared mappings ---- */

enum { MAPPINGS = 1024 };

/* Shared mappings of recorded files, so that msync can tell what it syncs. */
static struct {
  _Atomic uintptr_t address; /* 0: free */
  size_t bytes;
  uint64_t inode;
  int64_t offset;
} mappings[MAPPINGS];
static _Atomic int mappings_seen; /* most programs have none, and unmap often */

static void remember_mapping(void *address, size_t bytes, uint64_t inode, off_t offset) {
  for (int i = 0; i < MAPPINGS; i++) {
    uintptr_t nothing = 0;
    if (!atomic_compare_exchange_strong(&mappings[i].address, &nothing, (uintptr_t)address)) continue;
    mappings[i].bytes = bytes;
    mappings[i].inode = inode;
    mappings[i].offset = offset;
    atomic_fetch_add(&mappings_seen, 1);
    return;
  }
  recorder_count(UNSEEN_FAULT);
}

INTERPOSED void *mmap(void *address, size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  void *mapped = real()->mmap(address, bytes, protection, flags, descriptor, offset);
  struct file file;
  bool shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
  if (mapped != MAP_FAILED && shared && (protection & PROT_WRITE) != 0 && (flags & MAP_ANONYMOUS) == 0 &&
      file_find(descriptor, &file)) {
    recorder_count(UNSEEN_SHARED_MAPPING);
    remember_mapping(mapped, bytes, file.inode, offset);
  }
  return mapped;
}

INTERPOSED void *mmap64(void *address, size_t bytes, int protection, int flags, int descriptor, off64_t offset) {
  return mmap(address, bytes, protection, flags, descriptor, offset);
}

INTERPOSED int munmap(void *address, size_t bytes) {
  for (int i = 0; i < MAPPINGS && atomic_load(&mappings_seen) > 0; i++) {
    uintptr_t start = (uintptr_t)address;
    /* Free the place only if the whole mapping goes; otherwise it is still good for msync. */
    if (start != 0 && bytes >= mappings[i].bytes) atomic_compare_exchange_strong(&mappings[i].address, &start, 0);
  }
  return real()->munmap(address, bytes);
}

INTERPOSED int msync(void *address, size_t bytes, int flags) {
  uintptr_t at = (uintptr_t)address;
  for (int i = 0; i < MAPPINGS && (flags & MS_SYNC) != 0; i++) {
    uintptr_t start = atomic_load(&mappings[i].address);
    if (start == 0 || at < start || at >= start + mappings[i].bytes) continue;
    if (record_is_dropped("msync") || !recorder_enter()) break;
    struct record *record = record_prepare_plain(OP_MSYNC, mappings[i].inode,
                                                 mappings[i].offset + (int64_t)(at - start), (int64_t)bytes, 0);
    record_begin(record);
    int result = real()->msync(address, bytes, flags);
    record_end(record, result, mappings[i].inode);
    recorder_leave();
    return result;
  }
  return real()->msync(address, bytes, flags);
}

/* ---- copies inside the kernel ---- */

static void count_if_recorded(int descriptor, enum unseen what) {
  struct file file;
  if (file_find(descriptor, &file)) recorder_count(what);
}

INTERPOSED ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t bytes, unsigned flags) {
  count_if_recorded(to, UNSEEN_COPY);
  return real()->copy_file_range(from, from_at, to, to_at, bytes, flags);
}

INTERPOSED ssize_t sendfile(int to, int from, off_t *from_at, size_t bytes) {
  count_if_recorded(to, UNSEEN_COPY);
  return real()->sendfile(to, from, from_at, bytes);
}

INTERPOSED ssize_t sendfile64(int to, int from, off64_t *from_at, size_t bytes) {
  return sendfile(to, from, from_at, bytes);
}

INTERPOSED ssize_t splice(int from, off64_t *from_at, int to, off64_t *to_at, size_t bytes, unsigned flags) {
  count_if_recorded(to, UNSEEN_COPY);
  return real()->splice(from, from_at, to, to_at, bytes, flags);
}

/* ---- direct system calls ---- */

static void count_if_below(int folder, const char *path) {
  struct place place;
  if (!recorder_enter()) return;
  if (place_find(&place, folder, path, false)) recorder_count(UNSEEN_SYSTEM_CALL);
  recorder_leave();
}

static void count_always(enum unseen what) {
  if (!recorder_enter()) return;
  recorder_count(what);
  recorder_leave();
}

enum { OPEN_CHANGES = O_CREAT | O_TRUNC | O_WRONLY | O_RDWR };

static void look_at_system_call(long number, const long argument[6]) {
  switch (number) {
    case SYS_write:
    case SYS_pwrite64:
    case SYS_writev:
    case SYS_pwritev:
    case SYS_pwritev2:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_sync_file_range:
    case SYS_close:
      count_if_recorded((int)argument[0], UNSEEN_SYSTEM_CALL);
      break;
    case SYS_sync:
    case SYS_syncfs:
      count_always(UNSEEN_SYSTEM_CALL);
      break;
    case SYS_io_uring_setup:
      count_always(UNSEEN_IO_URING);
      break;
    case SYS_copy_file_range:
    case SYS_splice:
      count_if_recorded((int)argument[2], UNSEEN_COPY);
      break;
    case SYS_sendfile:
      count_if_recorded((int)argument[0], UNSEEN_COPY);
      break;
    case SYS_openat:
      if ((argument[2] & OPEN_CHANGES) != 0) count_if_below((int)argument[0], (const char *)argument[1]);
      break;
    case SYS_openat2: /* its flags lie in memory; any is counted */
    case SYS_unlinkat:
    case SYS_mkdirat:
      count_if_below((int)argument[0], (const char *)argument[1]);
      break;
    case SYS_renameat2:
    case SYS_linkat:
      count_if_below((int)argument[2], (const char *)argument[3]);
      break;
    case SYS_truncate:
      count_if_below(AT_FDCWD, (const char *)argument[0]);
      break;
#ifdef SYS_open /* the calls that newer architectures left out */
    case SYS_open:
      if ((argument[1] & OPEN_CHANGES) != 0) count_if_below(AT_FDCWD, (const char *)argument[0]);
      break;
    case SYS_creat:
    case SYS_unlink:
    case SYS_mkdir:
    case SYS_rmdir:
      count_if_below(AT_FDCWD, (const char *)argument[0]);
      break;
    case SYS_rename:
    case SYS_link:
      count_if_below(AT_FDCWD, (const char *)argument[1]);
      break;
#endif
    default:
      break;
  }
}

/* syscall(2) takes up to six arguments; which are there only the number tells, so all six registers pass. */
INTERPOSED long syscall(long number, ...) {
  long argument[6];
  va_list rest;
  va_start(rest, number);
  for (int i = 0; i < 6; i++) argument[i] = va_arg(rest, long);
  va_end(rest);
  look_at_system_call(number, argument);
  return real()->syscall(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}
