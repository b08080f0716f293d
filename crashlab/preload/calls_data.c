/*
 * Calls that change bytes and sizes, and syncs.
 *
 * A write at the file's own position, or to its end, is recorded with the offset it will have: asked under the file's
 * lock, which every recorded process takes for it, so nobody moves it in between.
 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KERNEL_WRITE_BYTES_MAX = 0x7ffff000 }; /* write(2): what one call transfers at most */

/* ---- writes ---- */

struct data {
  const struct iovec *parts;
  int count;
};

/* Whether the write goes to its own place, whatever the offset in the call: pwrite(2), BUGS, for O_APPEND. */
static bool appends(const struct file *file, int rwf) {
  return (file->flags & O_APPEND) != 0 || (rwf & RWF_APPEND) != 0;
}

static size_t bytes_in(struct data data) {
  size_t bytes = 0;
  for (int i = 0; i < data.count; i++) {
    if (data.parts[i].iov_len > KERNEL_WRITE_BYTES_MAX - bytes) return KERNEL_WRITE_BYTES_MAX;
    bytes += data.parts[i].iov_len;
  }
  return bytes;
}

static int64_t offset_of(int descriptor, const struct file *file, off_t offset, int rwf) {
  if (appends(file, rwf)) {
    struct stat status;
    return fstat(descriptor, &status) == 0 ? status.st_size : -1;
  }
  return offset >= 0 ? offset : lseek(descriptor, 0, SEEK_CUR);
}

/* Begin a write at `offset`, -1 for the file's own position. `locked`: whether write_end has a lock to give back. */
static struct record *write_begin(int descriptor, const struct file *file, struct data data, off_t offset, int rwf,
                                  bool *locked) {
  struct record *record = record_prepare(OP_WRITE, data.parts, data.count, bytes_in(data));
  bool own_sync = (file->flags & O_DSYNC) != 0 || (rwf & (RWF_DSYNC | RWF_SYNC)) != 0;
  bool direct = (file->flags & O_DIRECT) != 0;
  *locked = offset < 0 || appends(file, rwf) || (!own_sync && !direct);
  if (*locked) lock_file(file->inode);
  record->inode = file->inode;
  record->flags = (own_sync ? FLAG_OWN_SYNC : 0u) | (direct ? FLAG_DIRECT : 0u);
  record->a = offset_of(descriptor, file, offset, rwf);
  record_begin(record);
  return record;
}

/*
 * What the kernel is given: the recorded copy, so that the log and the file hold the same bytes even where another
 * process changes the engine's buffer meanwhile (PostgreSQL writes pages of shared memory that others still fill).
 * A direct write needs the alignment of the original.
 */
static struct iovec written_bytes(const struct record *record) {
  return (struct iovec){(void *)(uintptr_t)record->payload, record->payload_bytes};
}

static bool is_direct(const struct record *record) { return (record->flags & FLAG_DIRECT) != 0; }

static ssize_t write_end(const struct record *record, const struct file *file, bool locked, ssize_t result) {
  record_end(record, result, file->inode);
  if (locked) unlock_file(file->inode);
  recorder_leave();
  return result;
}

/* Whether the write was ended by the disk being full, as the run was asked for (faults.c). */
static bool finds_no_room(const struct record *record, int descriptor) {
  return fault_strikes(FAULT_WRITE_ENOSPC, record, descriptor);
}

static bool enter_file(int descriptor, struct file *file, const char *call) {
  (void)call;
  return file_find(descriptor, file) && !record_is_dropped(call) && recorder_enter();
}

INTERPOSED ssize_t write(int descriptor, const void *buffer, size_t bytes) {
  struct file file;
  if (!enter_file(descriptor, &file, "write")) return real()->write(descriptor, buffer, bytes);
  struct iovec part = {(void *)(uintptr_t)buffer, bytes};
  bool locked;
  struct record *record = write_begin(descriptor, &file, (struct data){&part, 1}, -1, 0, &locked);
  if (finds_no_room(record, descriptor)) return write_end(record, &file, locked, -1);
  const struct iovec copy = is_direct(record) ? part : written_bytes(record);
  return write_end(record, &file, locked, real()->write(descriptor, copy.iov_base, copy.iov_len));
}

INTERPOSED ssize_t pwrite(int descriptor, const void *buffer, size_t bytes, off_t offset) {
  struct file file;
  /* A negative offset is an error of the caller, and here would stand for the file's position. */
  if (offset < 0 || !enter_file(descriptor, &file, "pwrite"))
    return real()->pwrite(descriptor, buffer, bytes, offset);
  struct iovec part = {(void *)(uintptr_t)buffer, bytes};
  bool locked;
  struct record *record = write_begin(descriptor, &file, (struct data){&part, 1}, offset, 0, &locked);
  if (finds_no_room(record, descriptor)) return write_end(record, &file, locked, -1);
  const struct iovec copy = is_direct(record) ? part : written_bytes(record);
  return write_end(record, &file, locked, real()->pwrite(descriptor, copy.iov_base, copy.iov_len, offset));
}

INTERPOSED ssize_t pwrite64(int descriptor, const void *buffer, size_t bytes, off64_t offset) {
  return pwrite(descriptor, buffer, bytes, offset);
}

INTERPOSED ssize_t writev(int descriptor, const struct iovec *parts, int count) {
  struct file file;
  if (count < 0 || !enter_file(descriptor, &file, "writev")) return real()->writev(descriptor, parts, count);
  bool locked;
  struct record *record = write_begin(descriptor, &file, (struct data){parts, count}, -1, 0, &locked);
  if (finds_no_room(record, descriptor)) return write_end(record, &file, locked, -1);
  const struct iovec copy = written_bytes(record);
  if (!is_direct(record)) parts = &copy, count = 1;
  return write_end(record, &file, locked, real()->writev(descriptor, parts, count));
}

INTERPOSED ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset) {
  struct file file;
  if (count < 0 || offset < 0 || !enter_file(descriptor, &file, "pwritev"))
    return real()->pwritev(descriptor, parts, count, offset);
  bool locked;
  struct record *record = write_begin(descriptor, &file, (struct data){parts, count}, offset, 0, &locked);
  if (finds_no_room(record, descriptor)) return write_end(record, &file, locked, -1);
  const struct iovec copy = written_bytes(record);
  if (!is_direct(record)) parts = &copy, count = 1;
  return write_end(record, &file, locked, real()->pwritev(descriptor, parts, count, offset));
}

INTERPOSED ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset) {
  return pwritev(descriptor, parts, count, offset);
}

INTERPOSED ssize_t pwritev2(int descriptor, const struct iovec *parts, int count, off_t offset, int rwf) {
  struct file file;
  if (count < 0 || offset < -1 || !enter_file(descriptor, &file, "pwritev"))
    return real()->pwritev2(descriptor, parts, count, offset, rwf);
  bool locked;
  struct record *record = write_begin(descriptor, &file, (struct data){parts, count}, offset, rwf, &locked);
  if (finds_no_room(record, descriptor)) return write_end(record, &file, locked, -1);
  const struct iovec copy = written_bytes(record);
  if (!is_direct(record)) parts = &copy, count = 1;
  return write_end(record, &file, locked, real()->pwritev2(descriptor, parts, count, offset, rwf));
}

INTERPOSED ssize_t pwritev64v2(int descriptor, const struct iovec *parts, int count, off64_t offset, int rwf) {
  return pwritev2(descriptor, parts, count, offset, rwf);
}

/* ---- sizes ---- */

INTERPOSED int ftruncate(int descriptor, off_t size) {
  struct file file;
  if (!enter_file(descriptor, &file, "ftruncate")) return real()->ftruncate(descriptor, size);
  struct record *record = record_prepare_plain(OP_TRUNCATE, file.inode, size, 0, 0);
  lock_names();
  lock_file(file.inode);
  record_begin(record);
  int result = real()->ftruncate(descriptor, size);
  record_end(record, result, file.inode);
  unlock_file(file.inode);
  unlock_names();
  recorder_leave();
  return result;
}

INTERPOSED int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }

INTERPOSED int truncate(const char *path, off_t size) {
  if (record_is_dropped("truncate") || !recorder_enter()) return real()->truncate(path, size);
  struct place place;
  int result;
  if (!place_find(&place, AT_FDCWD, path, true)) {
    result = real()->truncate(path, size);
  } else {
    struct record *record = record_prepare_plain(OP_TRUNCATE, 0, size, 0, 0);
    lock_names();
    place_look(&place);
    record->inode = place.exists ? place.status.st_ino : 0;
    lock_file(record->inode);
    if (place.exists) record_begin(record);
    result = real()->truncate(path, size);
    if (place.exists) record_end(record, result, record->inode);
    unlock_file(record->inode);
    unlock_names();
  }
  recorder_leave();
  return result;
}

INTERPOSED int truncate64(const char *path, off64_t size) { return truncate(path, size); }

/* posix_fallocate returns its error, fallocate sets errno. */
static int allocate(int descriptor, int mode, off_t offset, off_t bytes, bool posix) {
  struct file file;
  if (!enter_file(descriptor, &file, "fallocate"))
    return posix ? real()->posix_fallocate(descriptor, offset, bytes)
                 : real()->fallocate(descriptor, mode, offset, bytes);
  struct record *record = record_prepare_plain(OP_FALLOCATE, file.inode, offset, bytes, (uint32_t)mode);
  lock_file(file.inode);
  record_begin(record);
  int result;
  if (posix) {
    result = real()->posix_fallocate(descriptor, offset, bytes);
    record_end(record, result == 0 ? 0 : -(int64_t)result - (result == 1), file.inode);
  } else {
    result = real()->fallocate(descriptor, mode, offset, bytes);
    record_end(record, result, file.inode);
  }
  unlock_file(file.inode);
  recorder_leave();
  return result;
}

INTERPOSED int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  return allocate(descriptor, mode, offset, bytes, false);
}

INTERPOSED int fallocate64(int descriptor, int mode, off64_t offset, off64_t bytes) {
  return allocate(descriptor, mode, offset, bytes, false);
}

INTERPOSED int posix_fallocate(int descriptor, off_t offset, off_t bytes) {
  return allocate(descriptor, 0, offset, bytes, true);
}

INTERPOSED int posix_fallocate64(int descriptor, off64_t offset, off64_t bytes) {
  return allocate(descriptor, 0, offset, bytes, true);
}

/* ---- syncs ---- */

/* A sync takes no lock: it orders nothing but what had ended before it began, and may take long. */
static struct record *sync_begin(enum operation operation, const struct file *file, int64_t a, int64_t b) {
  struct record *record =
      record_prepare_plain(operation, file->inode, a, b, file->directory ? (uint32_t)FLAG_DIRECTORY : 0u);
  record_begin(record);
  return record;
}

static int sync_end(const struct record *record, const struct file *file, int result) {
  record_end(record, result, file->inode);
  recorder_leave();
  return result;
}

/* Whether the sync is the one that was asked to fail (faults.c). */
static bool fails(const struct record *record, const struct file *file, int descriptor) {
  return !file->directory && fault_strikes(FAULT_SYNC_EIO, record, descriptor);
}

static bool enter_sync(int descriptor, struct file *file, const char *call) {
  (void)call;
  if (!file_find(descriptor, file)) return false;
  return !record_is_dropped(file->directory ? "dirsync" : call) && recorder_enter();
}

INTERPOSED int fsync(int descriptor) {
  struct file file;
  if (!enter_sync(descriptor, &file, "fsync")) return real()->fsync(descriptor);
  struct record *record = sync_begin(OP_FSYNC, &file, 0, 0);
  if (fails(record, &file, descriptor)) return sync_end(record, &file, -1);
  return sync_end(record, &file, real()->fsync(descriptor));
}

INTERPOSED int fdatasync(int descriptor) {
  struct file file;
  if (!enter_sync(descriptor, &file, "fdatasync")) return real()->fdatasync(descriptor);
  struct record *record = sync_begin(OP_FDATASYNC, &file, 0, 0);
  if (fails(record, &file, descriptor)) return sync_end(record, &file, -1);
  return sync_end(record, &file, real()->fdatasync(descriptor));
}

INTERPOSED int sync_file_range(int descriptor, off64_t offset, off64_t bytes, unsigned flags) {
  struct file file;
  if (!enter_sync(descriptor, &file, "sync_file_range"))
    return real()->sync_file_range(descriptor, offset, bytes, flags);
  struct record *record = sync_begin(OP_SYNC_FILE_RANGE, &file, offset, bytes);
  return sync_end(record, &file, real()->sync_file_range(descriptor, offset, bytes, flags));
}

INTERPOSED int syncfs(int descriptor) {
  struct stat status;
  if (record_is_dropped("syncfs") || !recorder_enter()) return real()->syncfs(descriptor);
  int result;
  if (fstat(descriptor, &status) == 0 && status.st_dev == recorder_device()) {
    struct record *record = record_prepare_plain(OP_SYNCFS, 0, 0, 0, 0);
    record_begin(record);
    result = real()->syncfs(descriptor);
    record_end(record, result, 0);
  } else {
    result = real()->syncfs(descriptor);
  }
  recorder_leave();
  return result;
}

INTERPOSED void sync(void) {
  if (record_is_dropped("sync") || !recorder_enter()) {
    real()->sync();
    return;
  }
  struct record *record = record_prepare_plain(OP_SYNCFS, 0, 0, 0, 0);
  record_begin(record);
  real()->sync();
  record_end(record, 0, 0);
  recorder_leave();
}
