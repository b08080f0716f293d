/*
 * The log itself: mapping it, taking chunks, publishing records, and the locks that keep their order.
 *
 * The hot path makes no system call but one for every fresh chunk, which has its pages made ready at once, and
 * allocates nothing. Everything that a kill may interrupt is in an order that leaves records complete or absent.
 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 65536, FILE_LOCKS = 512, FILE_LOCK_BITS = 9 };

struct lock {
  pthread_mutex_t mutex;
  char padding[64 - sizeof(pthread_mutex_t)];
};

struct log_header {
  char magic[8];
  uint64_t capacity;
  uint64_t nonce;
  uint32_t block_bytes;
  char padding_28[36];
  _Atomic uint64_t tail;
  char padding_72[56];
  _Atomic uint32_t full;
  char padding_132[60];
  _Atomic uint32_t unseen[16];
  struct fault_state fault;
  char padding_280[232];
  _Atomic uint32_t locks; /* 0 not made, 1 being made, 2 made */
  char padding_516[60];
  struct lock names;
  char padding_640[4096 - 640];
  struct lock files[FILE_LOCKS];
};
_Static_assert(offsetof(struct log_header, tail) == 64, "docs/formats.md");
_Static_assert(offsetof(struct log_header, full) == 128, "docs/formats.md");
_Static_assert(offsetof(struct log_header, unseen) == 192, "docs/formats.md");
_Static_assert(offsetof(struct log_header, fault) == 256, "docs/formats.md");
_Static_assert(offsetof(struct log_header, locks) == 512, "docs/formats.md");
_Static_assert(sizeof(struct log_header) <= BLOCK_BYTES, "the header ends before the first chunk");

struct chunk {
  _Atomic uint64_t nonce; /* stored last: a chunk without it was never begun */
  uint32_t blocks;
  uint32_t pid;
  uint32_t tid;
  uint32_t zero;
};
_Static_assert(sizeof(struct chunk) == 24, "docs/formats.md");

/* Lies on a page that a child of fork finds wiped, however it was forked: it then attaches by itself. */
struct process {
  pid_t pid;
};

struct thread {
  pid_t pid; /* of the process that the rest belongs to */
  pid_t tid;
  bool inside;
  char *next; /* room for the next record */
  char *end;
};

enum state { STATE_NEW, STATE_STARTING, STATE_OFF, STATE_STAMPING, STATE_ON };

static _Atomic int state;
static struct log_header *header;
static dt_ledger_header *ledger;
static struct process *process;
static dev_t root_device;
static char root[PATH_MAX];
static __thread struct thread thread __attribute__((tls_model("initial-exec")));

static void recorder_start(void);
static void attach(enum origin origin);

/* ---- starting ---- */

static _Noreturn void refuse(const char *what, const char *about) {
  /* An engine that runs unrecorded would be judged by an empty log, so it does not run at all. */
  dprintf(STDERR_FILENO, "duratune: cannot record: %s: %s: %s\n", what, about, strerror(errno));
  _exit(71);
}

static void *map_file(const char *path, size_t *bytes) {
  int descriptor = real()->openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) refuse("open", path);
  struct stat status;
  if (fstat(descriptor, &status) != 0) refuse("stat", path);
  *bytes = (size_t)status.st_size;
  errno = EINVAL;
  if (*bytes < DT_LEDGER_HEADER_BYTES) refuse("too short", path);
  void *mapped = real()->mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) refuse("map", path);
  real()->close(descriptor);
  return mapped;
}

static void make_lock(struct lock *lock) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&lock->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

static void make_locks(const char *path) {
  uint32_t none = 0;
  if (atomic_compare_exchange_strong(&header->locks, &none, 1)) {
    make_lock(&header->names);
    for (int i = 0; i < FILE_LOCKS; i++) make_lock(&header->files[i]);
    atomic_store(&header->locks, 2);
    return;
  }
  const struct timespec pause = {0, 1000000};
  for (int waited_ms = 0; atomic_load(&header->locks) != 2; waited_ms++) {
    errno = ETIMEDOUT;
    if (waited_ms > 10000) refuse("its locks stay half made", path);
    nanosleep(&pause, NULL);
  }
}

#ifdef DURATUNE_TEST_DROP
static char dropped[256];

bool record_is_dropped(const char *call) {
  char wanted[64];
  snprintf(wanted, sizeof wanted, ",%s,", call);
  return strstr(dropped, wanted) != NULL;
}
#endif

static void open_ledger(const char *path) {
  size_t bytes;
  ledger = map_file(path, &bytes);
  errno = EINVAL;
  if (!dt_ledger_is_valid(ledger, bytes)) refuse("no ledger", path);
}

static void open_log(const char *log_path, const char *root_path) {
  if (realpath(root_path, root) == NULL) refuse("root", root_path);
  struct stat status;
  if (stat(root, &status) != 0) refuse("root", root);
  root_device = status.st_dev;
  size_t bytes;
  header = map_file(log_path, &bytes);
  errno = EINVAL;
  if (bytes < BLOCK_BYTES || memcmp(header->magic, "DTWLOG01", 8) != 0 || header->capacity > bytes ||
      header->block_bytes != BLOCK_BYTES || header->nonce == 0)
    refuse("no write log", log_path);
  make_locks(log_path);
  const char *asked = getenv("DURATUNE_RECORD_FAULT");
  const char *wrong = asked == NULL ? NULL : fault_open(&header->fault, asked, getenv("DURATUNE_RECORD_FAULT_FILES"));
  errno = EINVAL;
  if (wrong != NULL) refuse(wrong, asked);
}

static void start(const char *log_path, const char *root_path, const char *ledger_path, const char *list_path) {
  errno = EINVAL;
  if (ledger_path == NULL || (log_path != NULL && root_path == NULL))
    refuse("DURATUNE_RECORD_ROOT or DURATUNE_RECORD_LEDGER", "not set");
  if (log_path != NULL) open_log(log_path, root_path);
  open_ledger(ledger_path);
  errno = EINVAL;
  const char *fault = list_path == NULL ? NULL : processes_open(list_path);
  if (fault != NULL) refuse(fault, list_path);
  process = real()->mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (process == MAP_FAILED) refuse("map", "a page");
  if (madvise(process, 4096, MADV_WIPEONFORK) != 0) refuse("MADV_WIPEONFORK", "a page");
#ifdef DURATUNE_TEST_DROP
  const char *drop = getenv("DURATUNE_TEST_DROP");
  if (drop != NULL) snprintf(dropped, sizeof dropped, ",%s,", drop);
#endif
}

/* The first attach of a forked child, so that it is known even if it writes nothing. */
static void after_fork(void) {
  if (atomic_load(&state) >= STATE_STAMPING) attach(ORIGIN_FORK);
}

static __attribute__((constructor)) void recorder_start(void) {
  int new = STATE_NEW;
  if (!atomic_compare_exchange_strong(&state, &new, STATE_STARTING)) {
    /* Another thread is starting it; this one waits unless it is the starting thread itself. */
    while (!thread.inside && atomic_load(&state) == STATE_STARTING) sched_yield();
    return;
  }
  thread.inside = true;
  int saved = errno;
  const char *log_path = getenv("DURATUNE_RECORD_LOG"), *ledger_path = getenv("DURATUNE_RECORD_LEDGER");
  if (log_path == NULL && ledger_path == NULL) {
    atomic_store(&state, STATE_OFF);
  } else {
    /* The strings are used up here: PostgreSQL later overwrites the environment's memory to show titles. */
    start(log_path, getenv("DURATUNE_RECORD_ROOT"), ledger_path, getenv("DURATUNE_RECORD_PROCESSES"));
    pthread_atfork(NULL, NULL, after_fork);
    attach(ORIGIN_PROGRAM);
    if (log_path != NULL) file_adopt_inherited();
    if (is_taken_before("fsync") || is_taken_before("fdatasync")) recorder_count(UNSEEN_SYNC_TAKEN);
    atomic_store(&state, log_path != NULL ? STATE_ON : STATE_STAMPING);
  }
  errno = saved;
  thread.inside = false;
}

static void attach(enum origin origin) {
  bool inside = thread.inside;
  int saved = errno;
  thread.inside = true;
  process->pid = getpid();
  pid_t parent = getppid();
  processes_report(process->pid, parent, origin);
  if (header != NULL) {
    const struct iovec name = {root, strlen(root)};
    struct record *record = record_prepare(OP_ATTACH, &name, 1, name.iov_len);
    record->a = process->pid;
    record->b = (int64_t)root_device;
    record->inode = (uint64_t)parent;
    record->flags = (uint32_t)origin;
    record_begin(record);
  }
  thread.inside = inside;
  errno = saved;
}

/* ---- who may record ---- */

/* The state once the recorder has started. */
static int started(void) {
  int now = atomic_load_explicit(&state, memory_order_acquire);
  if (now > STATE_STARTING) return now;
  recorder_start();
  return atomic_load(&state);
}

bool recorder_enter(void) {
  if (started() != STATE_ON) return false;
  if (thread.inside) {
    if (thread.pid == process->pid) recorder_count(UNSEEN_FAULT);
    return false;
  }
  if (process->pid == 0) attach(ORIGIN_FORK);
  thread.inside = true;
  return true;
}

dt_ledger_header *recorder_ledger(void) {
  if (started() < STATE_STAMPING) return NULL;
  if (process->pid == 0) attach(ORIGIN_FORK);
  return ledger;
}

void recorder_leave(void) { thread.inside = false; }

void recorder_count(enum unseen what) {
  if (header != NULL) atomic_fetch_add(&header->unseen[what], 1);
}

dev_t recorder_device(void) { return root_device; }

const char *recorder_root(void) { return root; }

bool recorder_is_in_own_process(void) { return process != NULL && getpid() == process->pid; }

/* ---- records ---- */

static _Noreturn void wait_for_the_kill(void) {
  atomic_store(&header->full, 1);
  dt_ledger_ask_stop(ledger, DT_STOP_WRITE_LOG_FULL);
  const struct timespec pause = {3600, 0};
  for (;;) nanosleep(&pause, NULL);
}

/*
 * Give a fresh chunk its pages at once: cheaper than a fault for each, and a full tmpfs is an error here and not a
 * SIGBUS later. Kernels before 5.14 do not know the advice; there the pages come one by one.
 */
static bool has_pages(char *chunk, size_t bytes) {
  while (madvise(chunk, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINVAL) return true;
    if (errno != EAGAIN && errno != EINTR) return false;
  }
  return true;
}

/* Move the thread to a fresh chunk that has room for `bytes`. */
static void take_chunk(size_t bytes) {
  uint64_t blocks = (sizeof(struct chunk) + bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
  if (atomic_load(&header->full)) wait_for_the_kill();
  uint64_t at = atomic_load(&header->tail);
  do {
    if (at + blocks * BLOCK_BYTES > header->capacity) wait_for_the_kill();
  } while (!atomic_compare_exchange_weak(&header->tail, &at, at + blocks * BLOCK_BYTES));
  struct chunk *chunk = (struct chunk *)(void *)((char *)header + at);
  if (!has_pages((char *)chunk, blocks * BLOCK_BYTES)) wait_for_the_kill();
  chunk->blocks = (uint32_t)blocks;
  chunk->pid = (uint32_t)thread.pid;
  chunk->tid = (uint32_t)thread.tid;
  atomic_store_explicit(&chunk->nonce, header->nonce, memory_order_release);
  thread.next = (char *)(chunk + 1);
  thread.end = (char *)chunk + blocks * BLOCK_BYTES;
}

static size_t record_size(size_t payload) { return (sizeof(struct record) + payload + 7) & ~(size_t)7; }

struct record *record_prepare(enum operation operation, const struct iovec *parts, int count, size_t bytes) {
  size_t needed = record_size(bytes) + sizeof(struct record); /* the end's room is taken with the begin's */
  if (thread.pid != process->pid) {
    thread.pid = process->pid;
    thread.tid = (pid_t)real()->syscall(SYS_gettid);
    thread.next = thread.end = NULL; /* what it had belongs to the parent of this process */
  }
  if ((size_t)(thread.end - thread.next) < needed) take_chunk(needed);
  struct record *record = (struct record *)(void *)thread.next;
  record->operation = (uint16_t)operation;
  record->phase = 0;
  record->begin = 0;
  record->inode = 0;
  record->a = record->b = 0;
  record->flags = 0;
  record->payload_bytes = (uint32_t)bytes;
  char *to = record->payload;
  for (int i = 0; i < count && bytes > 0; i++) {
    size_t part = parts[i].iov_len < bytes ? parts[i].iov_len : bytes;
    if (part > 0) memcpy(to, parts[i].iov_base, part);
    to += part;
    bytes -= part;
  }
  return record;
}

struct record *record_prepare_names(enum operation operation, const char *path, const char *new_path) {
  struct iovec parts[2] = {{(void *)(uintptr_t)path, strlen(path)}, {NULL, 0}};
  size_t bytes = parts[0].iov_len;
  if (new_path != NULL) {
    parts[0].iov_len++; /* the NUL between the two */
    parts[1] = (struct iovec){(void *)(uintptr_t)new_path, strlen(new_path)};
    bytes = parts[0].iov_len + parts[1].iov_len;
  }
  return record_prepare(operation, parts, 2, bytes);
}

struct record *record_prepare_plain(enum operation operation, uint64_t inode, int64_t a, int64_t b, uint32_t flags) {
  struct record *record = record_prepare(operation, NULL, 0, 0);
  record->inode = inode;
  record->a = a;
  record->b = b;
  record->flags = flags;
  return record;
}

static void publish(struct record *record) {
  size_t bytes = record_size(record->payload_bytes);
  record->position = dt_ledger_next_position(ledger);
  record->ns = dt_monotonic_ns();
  thread.next = (char *)record + bytes;
  atomic_store_explicit(&record->bytes, (uint32_t)bytes, memory_order_release);
}

void record_begin(struct record *record) { publish(record); }

void record_end(const struct record *begin, int64_t result, uint64_t inode) {
  int saved = errno;
  struct record *record = (struct record *)(void *)thread.next;
  record->operation = begin->operation;
  record->phase = 1;
  record->begin = begin->position;
  record->inode = inode;
  record->a = result == -1 ? -(int64_t)saved : result;
  record->b = 0;
  record->payload_bytes = 0;
  record->flags = 0;
  publish(record);
  errno = saved;
}

/* ---- locks ---- */

static void take(struct lock *lock) {
  int error = pthread_mutex_lock(&lock->mutex);
  /* Its owner was killed inside the call; what it had begun is in the log as an operation without an end. */
  if (error == EOWNERDEAD) error = pthread_mutex_consistent(&lock->mutex);
  if (error != 0) recorder_count(UNSEEN_FAULT);
}

static struct lock *lock_of(uint64_t inode) {
  return &header->files[(inode * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - FILE_LOCK_BITS)];
}

void lock_names(void) { take(&header->names); }
void unlock_names(void) { pthread_mutex_unlock(&header->names.mutex); }
void lock_file(uint64_t inode) { take(lock_of(inode)); }
void unlock_file(uint64_t inode) { pthread_mutex_unlock(&lock_of(inode)->mutex); }
