/*
 * Which descriptors are of recorded files: a table by descriptor, read without a lock on the hot path.
 *
 * A descriptor is looked at once, when it is made: only regular files and folders below the root are remembered, by
 * inode. Descriptors that arrive in other ways than open, dup and exec (a message over a socket) are not known.
 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DESCRIPTORS = 1 << 20 };
enum { IS_DIRECTORY = INT32_MIN }; /* beside the flags of open, which never are negative */

/* 16 MiB of address space; a page of it is used when a descriptor in its range is. */
static struct {
  _Atomic uint64_t inode; /* 0: not recorded */
  _Atomic int32_t flags;
} table[DESCRIPTORS];

static bool in_table(int descriptor) { return descriptor >= 0 && descriptor < DESCRIPTORS; }

bool file_find(int descriptor, struct file *file) {
  if (!in_table(descriptor)) return false;
  file->inode = atomic_load_explicit(&table[descriptor].inode, memory_order_acquire);
  if (file->inode == 0) return false;
  int flags = atomic_load_explicit(&table[descriptor].flags, memory_order_relaxed);
  file->directory = (flags & IS_DIRECTORY) != 0;
  file->flags = flags & ~IS_DIRECTORY;
  return true;
}

static void remember(int descriptor, uint64_t inode, int flags) {
  /* A vfork child has its parent's memory and descriptors of its own: what it opens and closes is not the parent's. */
  if (!in_table(descriptor) || !recorder_is_in_own_process()) return;
  atomic_store_explicit(&table[descriptor].flags, flags, memory_order_relaxed);
  atomic_store_explicit(&table[descriptor].inode, inode, memory_order_release);
}

void file_forget(int descriptor) {
  struct file file;
  if (file_find(descriptor, &file)) remember(descriptor, 0, 0);
}

void file_adopt(int descriptor, int flags) {
  int saved = errno;
  struct stat status;
  char link[40], path[PATH_MAX];
  file_forget(descriptor);
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  if ((flags & O_PATH) == 0 && fstat(descriptor, &status) == 0 &&
      (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) {
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = '\0';
    if (place_below_root(path) != NULL) {
      /* Inodes are told apart on one file system only, and the table has an end. */
      if (status.st_dev != recorder_device() || !in_table(descriptor)) recorder_count(UNSEEN_FAULT);
      remember(descriptor, status.st_ino, flags | (S_ISDIR(status.st_mode) ? IS_DIRECTORY : 0));
    }
  }
  errno = saved;
}

/* After an exec: descriptors that were open before it. */
void file_adopt_inherited(void) {
  DIR *folder = opendir("/proc/self/fd");
  if (folder == NULL) {
    recorder_count(UNSEEN_FAULT);
    return;
  }
  for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
    int descriptor = atoi(entry->d_name);
    if (entry->d_name[0] == '.' || descriptor == dirfd(folder)) continue;
    int flags = real()->fcntl(descriptor, F_GETFL);
    if (flags >= 0) file_adopt(descriptor, flags);
  }
  real()->closedir(folder);
}

void file_copy(int from, int to) {
  struct file file;
  if (!file_find(from, &file)) {
    file_forget(to);
    return;
  }
  if (!in_table(to)) recorder_count(UNSEEN_FAULT);
  remember(to, file.inode, file.flags | (file.directory ? IS_DIRECTORY : 0));
}

void file_set_flags(int descriptor, int flags) {
  struct file file;
  if (file_find(descriptor, &file)) remember(descriptor, file.inode, flags | (file.directory ? IS_DIRECTORY : 0));
}
