/*
 * The ledger: one file in shared memory that holds every write of every client (docs/formats.md, "The ledger").
 *
 * Promise: the file outlives a SIGKILL of its writers; whatever a client had published before the kill is readable
 * afterwards, because the pages belong to the file and not to the process. A client publishes an entry by storing its
 * count with release order before it calls the engine, and answers it by storing the status with release order.
 *
 * Shared by the YCSB driver (C++17) and the recorder (C11). The position counter in the header is the only order that
 * crash states know; clients and recorder both take values from it.
 *
 * Not covered: a crash of the machine. The ledger is not synced and need not be: a power cut is simulated.
 */
#ifndef DURATUNE_WORKLOADS_LEDGER_H
#define DURATUNE_WORKLOADS_LEDGER_H

#include <stdint.h>
#include <string.h>
#include <time.h>

#define DT_LEDGER_MAGIC "DTLEDG01"
#define DT_LEDGER_HEADER_BYTES 4096u
#define DT_LEDGER_ENTRY_BYTES 64u
#define DT_LEDGER_CLIENT_BYTES 64u

enum dt_ledger_stop {
  DT_STOP_NONE = 0,
  DT_STOP_WRITE_LOG_FULL = 1,
  DT_STOP_LEDGER_FULL = 2,
  DT_STOP_ASKED = 3
};

enum dt_ledger_kind { DT_KIND_INSERT = 1, DT_KIND_UPDATE = 2, DT_KIND_READ_MODIFY_WRITE = 3 };

enum dt_ledger_status { DT_STATUS_BEGUN = 0, DT_STATUS_ACKNOWLEDGED = 1, DT_STATUS_FAILED = 2 };

/* Each field that several processes change has a cache line of its own. */
typedef struct dt_ledger_header {
  char magic[8];
  uint32_t header_bytes;
  uint32_t entry_bytes;
  uint32_t clients;
  uint32_t unused;
  uint64_t capacity; /* entries per client */
  uint8_t padding_32[32];
  uint64_t position; /* the next value to hand out */
  uint8_t padding_72[56];
  uint32_t stop;
  uint8_t padding_132[124];
  uint64_t sync_generation; /* odd while the three below are being written */
  uint64_t sync_position_before;
  uint64_t sync_counter;
  uint64_t sync_position_after;
} dt_ledger_header;

/* One for each client, behind the header; written by that client alone. */
typedef struct dt_ledger_client {
  uint64_t count;      /* entries begun */
  uint64_t operations; /* finished so far, reads included */
  uint8_t padding_16[48];
} dt_ledger_client;

typedef struct dt_ledger_entry {
  uint64_t begin_position; /* the counter's value when the write began: all that it does comes there or later */
  uint64_t begin_ns;
  uint64_t end_position; /* 0 while unanswered */
  uint64_t end_ns;
  uint64_t register_id; /* YCSB: the key number */
  uint64_t checksum;    /* of the whole stored value */
  uint32_t kind;
  uint32_t status; /* stored last, with release order */
  uint64_t extra;  /* free for the workload */
} dt_ledger_entry;

#ifdef __cplusplus
#define DT_LEDGER_ASSERT(condition) static_assert(condition, #condition)
#else
#define DT_LEDGER_ASSERT(condition) _Static_assert(condition, #condition)
#endif
DT_LEDGER_ASSERT(__builtin_offsetof(dt_ledger_header, capacity) == 24);
DT_LEDGER_ASSERT(__builtin_offsetof(dt_ledger_header, position) == 64);
DT_LEDGER_ASSERT(__builtin_offsetof(dt_ledger_header, stop) == 128);
DT_LEDGER_ASSERT(__builtin_offsetof(dt_ledger_header, sync_generation) == 256);
DT_LEDGER_ASSERT(__builtin_offsetof(dt_ledger_entry, status) == 52);
DT_LEDGER_ASSERT(sizeof(dt_ledger_client) == DT_LEDGER_CLIENT_BYTES);
DT_LEDGER_ASSERT(sizeof(dt_ledger_entry) == DT_LEDGER_ENTRY_BYTES);

static inline uint64_t dt_monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Where the entries of client 0 begin. */
static inline uint64_t dt_ledger_entries_offset(uint32_t clients) {
  uint64_t bytes = DT_LEDGER_HEADER_BYTES + (uint64_t)DT_LEDGER_CLIENT_BYTES * clients;
  return (bytes + 4095u) & ~(uint64_t)4095u;
}

static inline uint64_t dt_ledger_file_bytes(uint32_t clients, uint64_t capacity) {
  return dt_ledger_entries_offset(clients) + (uint64_t)DT_LEDGER_ENTRY_BYTES * capacity * clients;
}

/* 1 if `bytes` bytes at `base` are a whole ledger of this version, else 0. */
static inline int dt_ledger_is_valid(const void *base, uint64_t bytes) {
  const dt_ledger_header *header = (const dt_ledger_header *)base;
  if (bytes < DT_LEDGER_HEADER_BYTES || memcmp(header->magic, DT_LEDGER_MAGIC, 8) != 0) return 0;
  if (header->header_bytes != DT_LEDGER_HEADER_BYTES || header->entry_bytes != DT_LEDGER_ENTRY_BYTES) return 0;
  if (header->clients == 0 || header->capacity > bytes / DT_LEDGER_ENTRY_BYTES) return 0;
  return bytes >= dt_ledger_file_bytes(header->clients, header->capacity);
}

/* The next value of the counter that orders all events of a run. */
static inline uint64_t dt_ledger_next_position(dt_ledger_header *header) {
  return __atomic_fetch_add(&header->position, 1, __ATOMIC_SEQ_CST);
}

static inline uint64_t dt_ledger_position(const dt_ledger_header *header) {
  return __atomic_load_n(&header->position, __ATOMIC_SEQ_CST);
}

static inline uint32_t dt_ledger_stop_reason(const dt_ledger_header *header) {
  return __atomic_load_n(&header->stop, __ATOMIC_RELAXED);
}

/* The first reason stays. */
static inline void dt_ledger_ask_stop(dt_ledger_header *header, uint32_t reason) {
  uint32_t none = DT_STOP_NONE;
  __atomic_compare_exchange_n(&header->stop, &none, reason, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static inline dt_ledger_client *dt_ledger_client_of(dt_ledger_header *header, uint32_t client) {
  return (dt_ledger_client *)(void *)((char *)header + DT_LEDGER_HEADER_BYTES) + client;
}

static inline dt_ledger_entry *dt_ledger_entries(dt_ledger_header *header, uint32_t client) {
  char *base = (char *)header + dt_ledger_entries_offset(header->clients);
  return (dt_ledger_entry *)(void *)(base + (uint64_t)DT_LEDGER_ENTRY_BYTES * header->capacity * client);
}

/*
 * Begins the entry: the caller has filled in what is written. From now on a reader counts it as begun.
 *
 * The position is read and not taken. Whatever the write does takes its own positions later, from this value on, and
 * an acknowledgement that came before it took a smaller one; so nothing is less ordered, and a counter that all cores
 * share is written to once less.
 */
static inline void dt_ledger_begin(dt_ledger_header *header, dt_ledger_client *client, dt_ledger_entry *entry) {
  entry->begin_position = dt_ledger_position(header);
  entry->begin_ns = dt_monotonic_ns();
  __atomic_store_n(&client->count, client->count + 1, __ATOMIC_RELEASE);
}

/* Returns the time of the acknowledgement, so that the caller need not read the clock again. */
static inline uint64_t dt_ledger_acknowledge(dt_ledger_header *header, dt_ledger_entry *entry) {
  entry->end_position = dt_ledger_next_position(header);
  const uint64_t now_ns = dt_monotonic_ns();
  entry->end_ns = now_ns;
  __atomic_store_n(&entry->status, (uint32_t)DT_STATUS_ACKNOWLEDGED, __ATOMIC_RELEASE);
  return now_ns;
}

/* One writer only: a plain addition, stored at once. */
static inline void dt_ledger_count_operation(dt_ledger_client *client) {
  __atomic_store_n(&client->operations, client->operations + 1, __ATOMIC_RELAXED);
}

static inline uint64_t dt_ledger_operations(dt_ledger_header *header) {
  uint64_t sum = 0;
  for (uint32_t client = 0; client < header->clients; ++client) {
    sum += __atomic_load_n(&dt_ledger_client_of(header, client)->operations, __ATOMIC_RELAXED);
  }
  return sum;
}

static inline void dt_ledger_fail(dt_ledger_entry *entry) {
  __atomic_store_n(&entry->status, (uint32_t)DT_STATUS_FAILED, __ATOMIC_RELEASE);
}

/* One sample of the engine's own count of WAL syncs, between two readings of the position. One writer only. */
static inline void dt_ledger_store_sync_sample(dt_ledger_header *header, uint64_t before, uint64_t counter,
                                               uint64_t after) {
  uint64_t generation = __atomic_load_n(&header->sync_generation, __ATOMIC_RELAXED);
  __atomic_store_n(&header->sync_generation, generation + 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&header->sync_position_before, before, __ATOMIC_SEQ_CST);
  __atomic_store_n(&header->sync_counter, counter, __ATOMIC_SEQ_CST);
  __atomic_store_n(&header->sync_position_after, after, __ATOMIC_SEQ_CST);
  __atomic_store_n(&header->sync_generation, generation + 2, __ATOMIC_SEQ_CST);
}

#endif
