/*
 * The preload recorder: what its files share (format: docs/formats.md, "The write log").
 *
 * Modes, by the environment: with DURATUNE_RECORD_LOG (and _ROOT and _LEDGER) calls are recorded, and acknowledgements
 * are stamped; with DURATUNE_RECORD_LEDGER alone they are only stamped, and every other call passes; with neither the
 * library is idle. DURATUNE_RECORD_PROCESSES adds, in both modes, the list of the processes that the library is in.
 * DURATUNE_RECORD_FAULT, with a log, names one call that is made to fail (faults.c).
 *
 * Promise. Every call below the recorded root that changes bytes, sizes or names, and every sync, is in the log in two
 * records: a begin before the call is made, an end before control returns to the engine. A record is complete or
 * absent, whenever the process is killed. If the log has no room for a begin, the call is not made. What the log holds
 * of a write is what the kernel is given: the copy in the log stands in for the engine's buffer, which another process
 * may change meanwhile. Except for O_DIRECT, which needs the buffer's alignment: there the log has what the buffer held
 * just before the call.
 *
 * Order. Calls that change one file are made under a lock of that file, and calls that change names or truncate under
 * one lock for all, both shared by all recorded processes. So the order of begin positions is the order in which the
 * kernel applied them. O_DSYNC and O_DIRECT writes at a given offset are left outside of the file lock, because it
 * would hold other writes back for the time of a disk write; the engine gives no order to two that overlap either.
 *
 * Not covered. Stores through shared mappings, io_uring, direct system calls, copies inside the kernel: counted in the
 * log's header where they pass here, else found only because the replayed log differs from the live files. Static
 * binaries. Content written through stdio. A write from a buffer that the process may not read ends the process
 * instead of returning EFAULT. A recorded call in a signal handler that interrupted one counts as a fault.
 */
#ifndef DURATUNE_RECORD_H
#define DURATUNE_RECORD_H

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "ledger.h"

#define INTERPOSED __attribute__((visibility("default")))

/* Offsets are 64 bits wide in both spellings of each call (pwrite and pwrite64) only there. */
_Static_assert(sizeof(off_t) == 8 && sizeof(long) == 8, "the recorder needs a 64-bit system");

enum operation {
  OP_ATTACH = 1,
  OP_CREATE = 2,
  OP_WRITE = 3,
  OP_TRUNCATE = 4,
  OP_FALLOCATE = 5,
  OP_RENAME = 6,
  OP_LINK = 7,
  OP_UNLINK = 8,
  OP_MKDIR = 9,
  OP_RMDIR = 10,
  OP_FSYNC = 11,
  OP_FDATASYNC = 12,
  OP_MSYNC = 13,
  OP_SYNCFS = 14,
  OP_SYNC_FILE_RANGE = 15,
  OP_CLOSE = 16
};

enum { FLAG_OWN_SYNC = 1, FLAG_DIRECTORY = 2, FLAG_DIRECT = 4 };

/* What is seen and cannot be recorded; the place in the header's counts. */
enum unseen {
  UNSEEN_SHARED_MAPPING = 0,
  UNSEEN_IO_URING = 1,
  UNSEEN_SYSTEM_CALL = 2,
  UNSEEN_FAULT = 3,
  UNSEEN_COPY = 4,
  UNSEEN_STDIO = 5,
  UNSEEN_SYNC_TAKEN = 6
};

struct record {
  _Atomic uint32_t bytes; /* stored last, with release order */
  uint16_t operation;
  uint16_t phase;
  uint64_t position;
  uint64_t ns;
  uint64_t begin;
  uint64_t inode;
  int64_t a;
  int64_t b;
  uint32_t payload_bytes;
  uint32_t flags;
  char payload[];
};
_Static_assert(sizeof(struct record) == 64, "docs/formats.md: a record's header has 64 bytes");

/* ---- log.c ---- */

/*
 * Whether this thread may record now: the recorder is switched on, attached to this process, and the thread is not
 * inside of it already. Every true is followed by recorder_leave().
 */
bool recorder_enter(void);
void recorder_leave(void);
void recorder_count(enum unseen what);
dev_t recorder_device(void);
const char *recorder_root(void);
/* Whether this is the process that the recorder attached to, and not a vfork child that borrows its memory. */
bool recorder_is_in_own_process(void);
/* The ledger that acknowledgements are stamped in, with a log or without one; NULL where the library is idle. */
dt_ledger_header *recorder_ledger(void);

/*
 * Take room for an operation and its end, and copy the payload from `parts`, up to `bytes`. Where there is no room,
 * this waits for the kill and never returns.
 */
struct record *record_prepare(enum operation operation, const struct iovec *parts, int count, size_t bytes);
struct record *record_prepare_names(enum operation operation, const char *path, const char *new_path);
struct record *record_prepare_plain(enum operation operation, uint64_t inode, int64_t a, int64_t b, uint32_t flags);
/* Give the prepared record its position and make it visible: the last step before the call. */
void record_begin(struct record *record);
/* The first step after it; -1 is turned into -errno, and errno is left as it was. */
void record_end(const struct record *begin, int64_t result, uint64_t inode);

void lock_names(void);
void unlock_names(void);
void lock_file(uint64_t inode);
void unlock_file(uint64_t inode);

/* Test builds only (DURATUNE_TEST_DROP): whether the named call is to pass by unrecorded. */
#ifdef DURATUNE_TEST_DROP
bool record_is_dropped(const char *call);
#else
#define record_is_dropped(call) false
#endif

/* ---- faults.c: the one call of a run that is made to fail ---- */

enum fault { FAULT_SYNC_EIO = 1, FAULT_WRITE_ENOSPC = 2 };

/* Lies in the log's header. */
struct fault_state {
  _Atomic uint32_t armed; /* calls are counted from then on */
  uint32_t zero;
  _Atomic uint64_t count;    /* of the calls that it is about */
  _Atomic uint64_t position; /* where the one that failed began; 0 before it */
};
_Static_assert(sizeof(struct fault_state) == 24, "docs/formats.md");

/* Take in what is asked for; `pattern` NULL for every file. Returns NULL, or what is wrong with it. */
const char *fault_open(struct fault_state *state, const char *asked, const char *pattern);
/* Whether the call that `begin` records is the one that fails; then errno is set, and it is not to be made. */
bool fault_strikes(enum fault of, const struct record *begin, int descriptor);

/* ---- files.c: which descriptors are of recorded files ---- */

struct file {
  uint64_t inode;
  int flags; /* those of open */
  bool directory;
};

/* Whether `descriptor` is of a recorded file or folder. */
bool file_find(int descriptor, struct file *file);
/* Look at a descriptor that was just made and remember it if it is of a file below the root. */
void file_adopt(int descriptor, int flags);
void file_adopt_inherited(void);
void file_forget(int descriptor);
void file_copy(int from, int to);
void file_set_flags(int descriptor, int flags);

/* ---- calls_socket.c ---- */

/* The descriptor is about to be closed. */
void socket_forget(int descriptor);

/* ---- processes.c: the list of the processes that the library is in ---- */

enum origin { ORIGIN_PROGRAM = 1, ORIGIN_FORK = 2 };

/* Map the list; returns NULL, or what is wrong with it. */
const char *processes_open(const char *path);
/* Put this process on the list, if there is one. */
void processes_report(pid_t pid, pid_t parent, enum origin origin);

/* ---- place.c: where a path leads ---- */

struct place {
  char absolute[PATH_MAX];
  const char *relative; /* to the root; NULL outside of it */
  bool exists;
  struct stat status; /* where it exists */
};

/*
 * Fill `place` for `path` as the *at calls take it. The folder's symbolic links are resolved, the last component's only
 * if `follow`. Returns whether it lies below the root. errno is left as it was.
 */
bool place_find(struct place *place, int folder, const char *path, bool follow);
/* Look again whether it exists; under the lock of names. */
void place_look(struct place *place);
/* The part of an absolute resolved path below the root, or NULL. */
const char *place_below_root(const char *absolute);

/* ---- real.c: the calls of the next library ---- */

struct real_calls {
  int (*openat)(int, const char *, int, ...);
  ssize_t (*write)(int, const void *, size_t);
  ssize_t (*pwrite)(int, const void *, size_t, off_t);
  ssize_t (*writev)(int, const struct iovec *, int);
  ssize_t (*pwritev)(int, const struct iovec *, int, off_t);
  ssize_t (*pwritev2)(int, const struct iovec *, int, off_t, int);
  int (*fsync)(int);
  int (*fdatasync)(int);
  int (*sync_file_range)(int, off_t, off_t, unsigned);
  int (*syncfs)(int);
  void (*sync)(void);
  int (*msync)(void *, size_t, int);
  int (*ftruncate)(int, off_t);
  int (*truncate)(const char *, off_t);
  int (*fallocate)(int, int, off_t, off_t);
  int (*posix_fallocate)(int, off_t, off_t);
  int (*renameat)(int, const char *, int, const char *);
  int (*renameat2)(int, const char *, int, const char *, unsigned);
  int (*linkat)(int, const char *, int, const char *, int);
  int (*unlinkat)(int, const char *, int);
  int (*mkdirat)(int, const char *, mode_t);
  int (*close)(int);
  int (*close_range)(unsigned, unsigned, int);
  void (*closefrom)(int);
  int (*dup)(int);
  int (*dup2)(int, int);
  int (*dup3)(int, int, int);
  int (*fcntl)(int, int, ...);
  FILE *(*fopen)(const char *, const char *);
  FILE *(*fdopen)(int, const char *);
  int (*fclose)(FILE *);
  int (*closedir)(DIR *);
  void *(*mmap)(void *, size_t, int, int, int, off_t);
  int (*munmap)(void *, size_t);
  long (*syscall)(long, ...);
  ssize_t (*copy_file_range)(int, off_t *, int, off_t *, size_t, unsigned);
  ssize_t (*sendfile)(int, int, off_t *, size_t);
  ssize_t (*splice)(int, off_t *, int, off_t *, size_t, unsigned);
  ssize_t (*recv)(int, void *, size_t, int);
  ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
  ssize_t (*recvmsg)(int, struct msghdr *, int);
  ssize_t (*send)(int, const void *, size_t, int);
  ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
  ssize_t (*sendmsg)(int, const struct msghdr *, int);
};
/*
 * Found at the first use. A library that is stacked before this one in LD_PRELOAD is not reached from here: a call that
 * it swallows is not recorded, which is what a planted fault needs.
 */
const struct real_calls *real(void);
/* Whether another library takes this call of the program before this one does, and may not pass it on. */
bool is_taken_before(const char *call);

#endif
