/*
 * Which transactions a PostgreSQL backend has answered, told from the bytes of its client's connection.
 *
 * A write carries a token in its text: 19 decimal digits, 7, then the client (6 digits), then its sequence (12), and
 * no letter before them, so that a key such as YCSB's user7000001000000000001 is none. The token's entry in the ledger
 * begins when the bytes that hold it arrive, and is acknowledged just before the bytes go out that tell the client of
 * the commit. Formats: docs/formats.md, "The ledger" and "Tokens"; PostgreSQL's manual, "Message Flow" and "Message
 * Formats" of the frontend/backend protocol 3, which versions 13 to 18 speak.
 *
 * Promise. A token is acknowledged only by a ReadyForQuery with the status 'I' that ends the transaction in which the
 * token was sent, where a command of the token's own query completed that did not say it wrote no row, and since the
 * token came no error, no ROLLBACK (also to a savepoint) and no PREPARE TRANSACTION was answered. Where that is not
 * so, it fails: it may be in the database or not. So an acknowledgement may be lacking, where one transaction both kept
 * and dropped work, but is never too many or too early. Any number of tokens and of pipelined queries may be under way;
 * bytes may be cut anywhere.
 *
 * Not covered. Encrypted connections: nothing of them is followed. Work that a function's EXCEPTION block has undone,
 * and statements that were prepared with the token in their text and executed by a later query: the first would be
 * acknowledged, the second fail. One client on two connections at the same time. Protocol 2.
 */
#ifndef DURATUNE_CONVERSATION_H
#define DURATUNE_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ledger.h"

enum { TOKENS_MAX = 1024, TAG_BYTES = 24, HEAD_BYTES = 8 };

struct token {
  uint32_t client;   /* from 1 */
  bool counts;       /* its client does not count its operations itself */
  uint64_t sequence; /* from 1 */
  uint64_t query;    /* the number of the ReadyForQuery that will answer it */
};

enum phase { PHASE_STARTUP = 0, PHASE_MESSAGES, PHASE_IGNORED };

/* One direction, message by message. */
struct stream {
  uint8_t head[HEAD_BYTES];
  uint32_t have; /* bytes of the head */
  uint32_t left; /* bytes of the body that are still to come */
  char type;
};

/* All zero at the start. */
struct conversation {
  enum phase phase;
  struct stream in, out;
  unsigned digits; /* of the run of digits that the input is in */
  uint64_t number;
  char before;       /* the byte of the message before that run, or NUL */
  uint64_t asked;    /* queries that the client has finished sending; the startup is the first */
  uint64_t answered; /* ReadyForQuery messages that went out */
  char asked_by;     /* the type of the message that ended the last query */
  bool completed;    /* a command of the query that is being answered has completed */
  char body[TAG_BYTES];
  uint32_t body_bytes;
  uint32_t tokens_count;
  struct token tokens[TOKENS_MAX];
};

/* Bytes that have arrived from the client. */
void conversation_hear(struct conversation *conversation, dt_ledger_header *ledger, const char *bytes, size_t count);
/* Bytes that are about to go out to it. */
void conversation_say(struct conversation *conversation, dt_ledger_header *ledger, const char *bytes, size_t count);

#endif
