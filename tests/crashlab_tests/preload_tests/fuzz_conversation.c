/*
 * fuzz_conversation SEED ROUNDS: bytes of both sides, right and wrong ones, in pieces of any size.
 *
 * Built with sanitizers, which watch the memory; this program watches the ledger: no entry beyond its count, no status
 * that is none, an acknowledgement only with its end, and one that stands is never taken back.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversation.h"

enum { CLIENTS = 3, CAPACITY = 300, BYTES = 1 << 16 };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 33) % below;
}

static size_t put_message(char *to, char type, const char *body, size_t bytes) {
  uint32_t length = (uint32_t)bytes + 4;
  if (draw(400) == 0) length = draw(2) ? draw(5) : UINT32_MAX;
  to[0] = type;
  for (int i = 0; i < 4; i++) to[1 + i] = (char)(length >> (24 - 8 * i));
  memcpy(to + 5, body, bytes);
  return bytes + 5;
}

static size_t put_asked(char *to) {
  static const char types[] = "QQQBBPSSSFdcfEDHX";
  char body[128];
  int bytes = snprintf(body, sizeof body, "x%s7%06u%012u%s", draw(9) ? "'" : "1", draw(CLIENTS + 2),
                       draw(20) ? draw(60) : draw(CAPACITY + 10), draw(9) ? "'" : "");
  return put_message(to, types[draw(sizeof types - 1)], body, draw(5) ? (size_t)bytes + 1 : 0);
}

static size_t put_answer(char *to) {
  static const char *const tags[] = {"INSERT 0 1", "COMMIT", "ROLLBACK", "PREPARE TRANSACTION", "A TAG OF MORE THAN 24 BYTES"};
  const char *tag = tags[draw(5)];
  switch (draw(8)) {
    case 0: return put_message(to, 'E', "SERROR", 7);
    case 1: return put_message(to, 'D', "C\0\0\0\x05Z\0\0\0\x05I", 11);
    case 2: return put_message(to, 'G', "", 0);
    case 3: case 4: case 5: return put_message(to, 'C', tag, strlen(tag) + 1);
    default: return put_message(to, 'Z', draw(4) ? "I" : draw(2) ? "T" : "E", draw(50) ? 1 : 0);
  }
}

static void feed(struct conversation *c, dt_ledger_header *ledger, const char *bytes, size_t count, int says) {
  while (count > 0) {
    size_t piece = draw(3) ? draw((uint32_t)(count < 40 ? count : 40)) + 1 : count;
    if (piece > count) piece = count;
    /* A copy of its own, so that a read behind its end is seen. */
    char *copy = malloc(piece);
    memcpy(copy, bytes, piece);
    (says ? conversation_say : conversation_hear)(c, ledger, copy, piece);
    free(copy);
    bytes += piece;
    count -= piece;
  }
}

static int is_sound(dt_ledger_header *ledger, uint32_t before[CLIENTS][CAPACITY]) {
  for (uint32_t client = 0; client < CLIENTS; client++) {
    uint64_t count = dt_ledger_client_of(ledger, client)->count;
    if (count > CAPACITY) return 0;
    for (uint64_t i = 0; i < CAPACITY; i++) {
      const dt_ledger_entry *entry = dt_ledger_entries(ledger, client) + i;
      if (entry->status > DT_STATUS_FAILED || (i >= count && entry->begin_position != 0)) return 0;
      if (i < count && (entry->begin_position == 0 || entry->kind != DT_KIND_INSERT)) return 0;
      if (entry->status == DT_STATUS_ACKNOWLEDGED && entry->end_position == 0) return 0;
      if (before[client][i] == DT_STATUS_ACKNOWLEDGED && entry->status != before[client][i]) return 0;
      before[client][i] = entry->status;
    }
  }
  return 1;
}

int main(int count, char **arguments) {
  static const char hello[] = "\0\0\0\x0c\0\3\0\0user";
  static uint32_t before[CLIENTS][CAPACITY];
  if (count != 3) return 2;
  state = strtoull(arguments[1], NULL, 10);
  dt_ledger_header *ledger = calloc(1, dt_ledger_file_bytes(CLIENTS, CAPACITY));
  ledger->clients = CLIENTS;
  ledger->capacity = CAPACITY;
  ledger->position = 1;
  char *bytes = malloc(BYTES);
  unsigned acknowledged = 0;
  for (int round = atoi(arguments[2]); round > 0; round--) {
    struct conversation *c = calloc(1, sizeof *c);
    size_t filled = sizeof hello - 1;
    memcpy(bytes, hello, filled);
    feed(c, ledger, bytes, filled, 0);
    feed(c, ledger, bytes, put_message(bytes, 'Z', "I", 1), 1);
    for (int step = draw(60); step > 0; step--) {
      int says = draw(2) != 0;
      filled = 0;
      for (int messages = (int)draw(4) + (draw(300) ? 0 : 700); messages > 0; messages--)
        filled += says ? put_answer(bytes + filled) : put_asked(bytes + filled);
      feed(c, ledger, bytes, filled, says);
      if (c->tokens_count > TOKENS_MAX || !is_sound(ledger, before)) return 1;
    }
    free(c);
  }
  for (uint32_t client = 0; client < CLIENTS; client++)
    for (int i = 0; i < CAPACITY; i++) acknowledged += before[client][i] == DT_STATUS_ACKNOWLEDGED;
  printf("%u acknowledged\n", acknowledged);
  free(bytes);
  free(ledger);
  return 0;
}
