/*
 * Calls that change names: opens that create or empty a file, renames, links, and folders.
 *
 * Each looks at the names, begins its record, makes the call and ends its record under the one lock of names, so
 * "did it exist before" and "which inode was replaced" are facts and not guesses.
 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

/* ---- open ---- */

/* Under the lock of names. */
static int open_in_place(struct place *place, int folder, const char *path, int flags, mode_t mode) {
  place_look(place);
  struct record *record = NULL;
  uint64_t inode = 0;
  if (!place->exists && (flags & O_CREAT) != 0 && !record_is_dropped("create")) {
    record = record_prepare_names(OP_CREATE, place->relative, NULL);
  } else if (place->exists && (flags & O_TRUNC) != 0 && S_ISREG(place->status.st_mode) &&
             (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL) && !record_is_dropped("truncate")) {
    inode = place->status.st_ino;
    record = record_prepare_plain(OP_TRUNCATE, inode, 0, 0, 0);
    lock_file(inode);
  }
  if (record != NULL) record_begin(record);
  int descriptor = real()->openat(folder, path, flags, mode);
  if (record == NULL) return descriptor;
  if (inode != 0) {
    record_end(record, descriptor, inode);
    unlock_file(inode);
    return descriptor;
  }
  struct stat status;
  int saved = errno;
  bool made = descriptor >= 0 && fstat(descriptor, &status) == 0;
  errno = saved;
  record_end(record, descriptor, made ? status.st_ino : 0);
  return descriptor;
}

static int open_recorded(int folder, const char *path, int flags, mode_t mode) {
  if (!recorder_enter()) return real()->openat(folder, path, flags, mode);
  struct place place;
  int descriptor;
  bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
  /* Anything but a regular file is neither made nor emptied, and a FIFO may block: it is opened without the lock. */
  if ((flags & (O_CREAT | O_TRUNC)) != 0 && !nameless && place_find(&place, folder, path, true) &&
      (!place.exists || S_ISREG(place.status.st_mode))) {
    lock_names();
    descriptor = open_in_place(&place, folder, path, flags, mode);
    unlock_names();
  } else {
    descriptor = real()->openat(folder, path, flags, mode);
    /* A file that was never created by a name has no place in the log. */
    if (nameless && descriptor >= 0 && place_find(&place, folder, path, true)) recorder_count(UNSEEN_FAULT);
  }
  if (descriptor >= 0) file_adopt(descriptor, flags);
  recorder_leave();
  return descriptor;
}

/* open(2): the mode is there only if a file may be made. */
#define MODE_OF(flags)                                             \
  mode_t mode = 0;                                                 \
  if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                                  \
    va_start(rest, flags);                                         \
    mode = va_arg(rest, mode_t);                                   \
    va_end(rest);                                                  \
  }

INTERPOSED int open(const char *path, int flags, ...) {
  MODE_OF(flags)
  return open_recorded(AT_FDCWD, path, flags, mode);
}

INTERPOSED int open64(const char *path, int flags, ...) {
  MODE_OF(flags)
  return open_recorded(AT_FDCWD, path, flags, mode);
}

INTERPOSED int openat(int folder, const char *path, int flags, ...) {
  MODE_OF(flags)
  return open_recorded(folder, path, flags, mode);
}

INTERPOSED int openat64(int folder, const char *path, int flags, ...) {
  MODE_OF(flags)
  return open_recorded(folder, path, flags, mode);
}

INTERPOSED int creat(const char *path, mode_t mode) {
  return open_recorded(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

INTERPOSED int creat64(const char *path, mode_t mode) { return creat(path, mode); }

/* What open becomes where the caller was compiled with _FORTIFY_SOURCE. */
INTERPOSED int __open_2(const char *path, int flags) { return open_recorded(AT_FDCWD, path, flags, 0); }
INTERPOSED int __open64_2(const char *path, int flags) { return open_recorded(AT_FDCWD, path, flags, 0); }
INTERPOSED int __openat_2(int folder, const char *path, int flags) { return open_recorded(folder, path, flags, 0); }
INTERPOSED int __openat64_2(int folder, const char *path, int flags) { return open_recorded(folder, path, flags, 0); }

/* ---- stdio ---- */

/* The flags of open for a mode of fopen(3). */
static int flags_of_mode(const char *mode) {
  int both = strchr(mode, '+') != NULL ? O_RDWR : O_WRONLY;
  int exclusive = strchr(mode, 'x') != NULL ? O_EXCL : 0;
  if (mode[0] == 'w') return both | O_CREAT | O_TRUNC | exclusive;
  if (mode[0] == 'a') return both | O_CREAT | O_APPEND | exclusive;
  return both == O_RDWR ? O_RDWR : O_RDONLY;
}

/*
 * libc opens the file past us, so a file to be written is opened here first, with the same effect on names and size,
 * and then once more by libc. Its content is not recorded: this is what the count says.
 */
INTERPOSED FILE *fopen(const char *path, const char *mode) {
  int flags = flags_of_mode(mode);
  struct place place;
  if (flags == O_RDONLY || !recorder_enter()) return real()->fopen(path, mode);
  bool below = place_find(&place, AT_FDCWD, path, true);
  recorder_leave();
  if (!below) return real()->fopen(path, mode);
  int descriptor = open_recorded(AT_FDCWD, path, flags | O_CLOEXEC, 0666);
  if (descriptor < 0) return NULL;
  if (strchr(mode, 'e') == NULL) real()->fcntl(descriptor, F_SETFD, 0);
  FILE *stream = fdopen(descriptor, mode);
  if (stream == NULL) close(descriptor);
  return stream;
}

INTERPOSED FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

INTERPOSED FILE *fdopen(int descriptor, const char *mode) {
  struct file file;
  if (file_find(descriptor, &file) && flags_of_mode(mode) != O_RDONLY) recorder_count(UNSEEN_STDIO);
  return real()->fdopen(descriptor, mode);
}

/* ---- names ---- */

static int rename_recorded(int old_folder, const char *old, int new_folder, const char *new, unsigned flags) {
  /* Older kernels lack renameat2; it is called only where the engine itself needs it. */
#define CALL (flags == 0 ? real()->renameat(old_folder, old, new_folder, new) \
                         : real()->renameat2(old_folder, old, new_folder, new, flags))
  if (record_is_dropped("rename") || !recorder_enter()) return CALL;
  struct place from, to;
  bool from_below = place_find(&from, old_folder, old, false);
  bool to_below = place_find(&to, new_folder, new, false);
  if (!from_below && !to_below) {
    recorder_leave();
    return CALL;
  }
  lock_names();
  place_look(&from);
  place_look(&to);
  struct record *record = NULL;
  if (from_below && to_below)
    record = record_prepare_names(OP_RENAME, from.relative, to.relative);
  else if (from_below)
    record = record_prepare_names(OP_UNLINK, from.relative, NULL);
  if (record != NULL && from.exists) {
    record->inode = from.status.st_ino;
    record->a = to.exists && to_below ? (int64_t)to.status.st_ino : 0;
    record_begin(record);
  }
  int result = CALL;
  if (record != NULL && from.exists) record_end(record, result, from.status.st_ino);
  /* Content that comes from outside, and two names exchanged, have no record. */
  if (result == 0 && (!from_below || (flags & RENAME_EXCHANGE) != 0)) recorder_count(UNSEEN_FAULT);
  unlock_names();
  recorder_leave();
  return result;
#undef CALL
}

INTERPOSED int rename(const char *old, const char *new) { return rename_recorded(AT_FDCWD, old, AT_FDCWD, new, 0); }

INTERPOSED int renameat(int old_folder, const char *old, int new_folder, const char *new) {
  return rename_recorded(old_folder, old, new_folder, new, 0);
}

INTERPOSED int renameat2(int old_folder, const char *old, int new_folder, const char *new, unsigned flags) {
  return rename_recorded(old_folder, old, new_folder, new, flags);
}

INTERPOSED int linkat(int old_folder, const char *old, int new_folder, const char *new, int flags) {
  if (record_is_dropped("link") || !recorder_enter()) return real()->linkat(old_folder, old, new_folder, new, flags);
  struct place from, to;
  bool from_below = place_find(&from, old_folder, old, (flags & AT_SYMLINK_FOLLOW) != 0);
  int result;
  if (!place_find(&to, new_folder, new, false)) {
    result = real()->linkat(old_folder, old, new_folder, new, flags);
  } else if (!from_below || (flags & AT_EMPTY_PATH) != 0) {
    /* Content from outside, or a file without a name. */
    result = real()->linkat(old_folder, old, new_folder, new, flags);
    if (result == 0) recorder_count(UNSEEN_FAULT);
  } else {
    lock_names();
    place_look(&from);
    struct record *record = record_prepare_names(OP_LINK, from.relative, to.relative);
    record->inode = from.exists ? from.status.st_ino : 0;
    if (from.exists) record_begin(record);
    result = real()->linkat(old_folder, old, new_folder, new, flags);
    if (from.exists) record_end(record, result, from.status.st_ino);
    unlock_names();
  }
  recorder_leave();
  return result;
}

INTERPOSED int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

static int unlink_recorded(int folder, const char *path, int flags, const char *call) {
  (void)call;
  if (record_is_dropped(call) || !recorder_enter()) return real()->unlinkat(folder, path, flags);
  struct place place;
  int result;
  if (!place_find(&place, folder, path, false)) {
    result = real()->unlinkat(folder, path, flags);
  } else {
    lock_names();
    place_look(&place);
    struct record *record =
        record_prepare_names((flags & AT_REMOVEDIR) != 0 ? OP_RMDIR : OP_UNLINK, place.relative, NULL);
    record->inode = place.exists ? place.status.st_ino : 0;
    if (place.exists) record_begin(record);
    result = real()->unlinkat(folder, path, flags);
    if (place.exists) record_end(record, result, place.status.st_ino);
    unlock_names();
  }
  recorder_leave();
  return result;
}

INTERPOSED int unlink(const char *path) { return unlink_recorded(AT_FDCWD, path, 0, "unlink"); }
INTERPOSED int rmdir(const char *path) { return unlink_recorded(AT_FDCWD, path, AT_REMOVEDIR, "rmdir"); }

INTERPOSED int unlinkat(int folder, const char *path, int flags) {
  return unlink_recorded(folder, path, flags, (flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink");
}

INTERPOSED int remove(const char *path) {
  struct stat status;
  int saved = errno;
  bool folder = fstatat(AT_FDCWD, path, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
  errno = saved;
  return folder ? rmdir(path) : unlink(path);
}

INTERPOSED int mkdirat(int folder, const char *path, mode_t mode) {
  if (record_is_dropped("mkdir") || !recorder_enter()) return real()->mkdirat(folder, path, mode);
  struct place place;
  int result;
  if (!place_find(&place, folder, path, false)) {
    result = real()->mkdirat(folder, path, mode);
  } else {
    lock_names();
    place_look(&place);
    bool existed = place.exists;
    struct record *record = record_prepare_names(OP_MKDIR, place.relative, NULL);
    if (!existed) record_begin(record);
    result = real()->mkdirat(folder, path, mode);
    int saved = errno;
    place_look(&place);
    errno = saved;
    if (!existed) record_end(record, result, result == 0 && place.exists ? place.status.st_ino : 0);
    unlock_names();
  }
  recorder_leave();
  return result;
}

INTERPOSED int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
