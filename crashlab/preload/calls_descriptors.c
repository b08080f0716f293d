/*
 * Calls that make, copy and close descriptors, so that the table of recorded files stays true.
 *
 * A descriptor is forgotten before it is closed: afterwards another thread may already have its number.
 */
#define _GNU_SOURCE
#include "record.h"

#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

/* Forget a descriptor that is about to be closed in some other way than close. */
static void closes(int descriptor) {
  struct file file;
  socket_forget(descriptor);
  if (!file_find(descriptor, &file) || !recorder_enter()) return;
  file_forget(descriptor);
  struct record *record = record_prepare_plain(OP_CLOSE, file.inode, 0, 0, 0);
  record_begin(record);
  record_end(record, 0, file.inode);
  recorder_leave();
}

INTERPOSED int close(int descriptor) {
  struct file file;
  socket_forget(descriptor);
  if (!file_find(descriptor, &file) || !recorder_enter()) return real()->close(descriptor);
  file_forget(descriptor);
  struct record *record = record_prepare_plain(OP_CLOSE, file.inode, 0, 0, 0);
  record_begin(record);
  int result = real()->close(descriptor);
  record_end(record, result, file.inode);
  recorder_leave();
  return result;
}

INTERPOSED int fclose(FILE *stream) {
  closes(fileno(stream));
  return real()->fclose(stream);
}

INTERPOSED int closedir(DIR *folder) {
  closes(dirfd(folder));
  return real()->closedir(folder);
}

static void close_all(unsigned first, unsigned last) {
  enum { DESCRIPTORS_MAX = 1 << 20 }; /* as many as the table knows */
  for (unsigned i = first; i <= last && i < DESCRIPTORS_MAX; i++) closes((int)i);
}

INTERPOSED int close_range(unsigned first, unsigned last, int flags) {
  if ((flags & (int)CLOSE_RANGE_CLOEXEC) == 0) close_all(first, last);
  return real()->close_range(first, last, flags);
}

INTERPOSED void closefrom(int first) {
  close_all(first < 0 ? 0u : (unsigned)first, UINT_MAX);
  real()->closefrom(first);
}

INTERPOSED int dup(int descriptor) {
  int copy = real()->dup(descriptor);
  if (copy >= 0) file_copy(descriptor, copy);
  return copy;
}

INTERPOSED int dup2(int descriptor, int wanted) {
  if (descriptor != wanted && real()->fcntl(descriptor, F_GETFD) >= 0) closes(wanted);
  int copy = real()->dup2(descriptor, wanted);
  if (copy >= 0 && descriptor != wanted) file_copy(descriptor, copy);
  return copy;
}

INTERPOSED int dup3(int descriptor, int wanted, int flags) {
  if (descriptor != wanted && real()->fcntl(descriptor, F_GETFD) >= 0) closes(wanted);
  int copy = real()->dup3(descriptor, wanted, flags);
  if (copy >= 0) file_copy(descriptor, copy);
  return copy;
}

static int control(int descriptor, int command, void *argument) {
  int result = real()->fcntl(descriptor, command, argument);
  if (result >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) file_copy(descriptor, result);
  /* O_APPEND and O_DIRECT may change; what F_SETFL ignores is read back. */
  if (result >= 0 && command == F_SETFL) file_set_flags(descriptor, real()->fcntl(descriptor, F_GETFL));
  return result;
}

/* fcntl(2) takes an int, a pointer or nothing; all travel in one register. */
INTERPOSED int fcntl(int descriptor, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  return control(descriptor, command, argument);
}

INTERPOSED int fcntl64(int descriptor, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  return control(descriptor, command, argument);
}
