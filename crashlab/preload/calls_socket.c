/*
 * Calls that receive from and send to the client of a PostgreSQL backend, so that its writes are stamped in the ledger.
 *
 * Versions 13 to 18 read by recv and write by send (src/backend/libpq/be-secure.c, secure_raw_read and
 * secure_raw_write) and send again what a call did not take. A connection is one whose first bytes, received and not
 * sent, are a client's start packet; every other socket is left alone.
 *
 * Promise: a write begins after its bytes were received and before the backend sees them, and is acknowledged before
 * the bytes that say so are given to the kernel. Not covered: a connection that two threads use at the same time.
 */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "conversation.h"

enum { CONNECTIONS = 16 }; /* a backend has one; the others are those of extensions, of which nothing is followed */

static struct connection {
  _Atomic int descriptor_and_one; /* 0: free */
  size_t ahead;                   /* bytes that were looked at and not taken by the kernel */
  struct conversation conversation;
} connections[CONNECTIONS];
static _Atomic int in_use;

static struct connection *find_connection(int descriptor) {
  if (atomic_load_explicit(&in_use, memory_order_relaxed) == 0) return NULL;
  for (int i = 0; i < CONNECTIONS; i++)
    if (atomic_load_explicit(&connections[i].descriptor_and_one, memory_order_acquire) == descriptor + 1)
      return &connections[i];
  return NULL;
}

static struct connection *make_connection(int descriptor) {
  for (int i = 0; i < CONNECTIONS; i++) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&connections[i].descriptor_and_one, &none, descriptor + 1)) continue;
    connections[i].ahead = 0;
    memset(&connections[i].conversation, 0, offsetof(struct conversation, tokens));
    atomic_fetch_add(&in_use, 1);
    return &connections[i];
  }
  return NULL;
}

void socket_forget(int descriptor) {
  struct connection *connection = find_connection(descriptor);
  if (connection == NULL || !recorder_is_in_own_process()) return;
  atomic_store(&connection->descriptor_and_one, 0);
  atomic_fetch_sub(&in_use, 1);
}

/* ---- receiving ---- */

static void received(int descriptor, const struct iovec *parts, size_t count, ssize_t bytes, int flags) {
  dt_ledger_header *ledger;
  if (bytes <= 0 || (flags & (MSG_PEEK | MSG_OOB | MSG_TRUNC)) != 0) return;
  if (record_is_dropped("recv") || (ledger = recorder_ledger()) == NULL) return;
  int saved = errno;
  struct connection *connection = find_connection(descriptor);
  if (connection == NULL) connection = make_connection(descriptor);
  size_t left = (size_t)bytes;
  for (size_t i = 0; connection != NULL && i < count && left > 0; i++) {
    size_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
    conversation_hear(&connection->conversation, ledger, parts[i].iov_base, part);
    left -= part;
  }
  errno = saved;
}

static ssize_t received_at_once(int descriptor, void *buffer, ssize_t bytes, int flags) {
  struct iovec part = {buffer, bytes > 0 ? (size_t)bytes : 0};
  received(descriptor, &part, 1, bytes, flags);
  return bytes;
}

INTERPOSED ssize_t recv(int descriptor, void *buffer, size_t bytes, int flags) {
  return received_at_once(descriptor, buffer, real()->recv(descriptor, buffer, bytes, flags), flags);
}

/* What recv becomes where the caller was compiled with _FORTIFY_SOURCE: too little room ends the program. */
INTERPOSED ssize_t __recv_chk(int descriptor, void *buffer, size_t bytes, size_t room, int flags) {
  if (bytes > room) abort();
  return recv(descriptor, buffer, bytes, flags);
}

INTERPOSED ssize_t recvfrom(int descriptor, void *buffer, size_t bytes, int flags, struct sockaddr *from,
                            socklen_t *from_bytes) {
  ssize_t result = real()->recvfrom(descriptor, buffer, bytes, flags, from, from_bytes);
  return received_at_once(descriptor, buffer, result, flags);
}

INTERPOSED ssize_t recvmsg(int descriptor, struct msghdr *message, int flags) {
  ssize_t result = real()->recvmsg(descriptor, message, flags);
  received(descriptor, message->msg_iov, message->msg_iovlen, result, flags);
  return result;
}

/* ---- sending ---- */

/* Look at what is about to go out, but for the part that an earlier call offered and the kernel did not take. */
static struct connection *offered(int descriptor, const struct iovec *parts, size_t count) {
  dt_ledger_header *ledger;
  struct connection *connection = find_connection(descriptor);
  if (connection == NULL || record_is_dropped("send") || (ledger = recorder_ledger()) == NULL) return NULL;
  int saved = errno;
  size_t known = connection->ahead, all = 0;
  for (size_t i = 0; i < count; i++) {
    size_t skipped = known < parts[i].iov_len ? known : parts[i].iov_len;
    known -= skipped;
    all += parts[i].iov_len;
    if (parts[i].iov_len > skipped)
      conversation_say(&connection->conversation, ledger, (const char *)parts[i].iov_base + skipped,
                       parts[i].iov_len - skipped);
  }
  if (all > connection->ahead) connection->ahead = all;
  errno = saved;
  return connection;
}

static ssize_t taken(struct connection *connection, ssize_t bytes) {
  if (connection != NULL && bytes > 0) {
    size_t sent = (size_t)bytes;
    connection->ahead -= sent < connection->ahead ? sent : connection->ahead;
  }
  return bytes;
}

INTERPOSED ssize_t send(int descriptor, const void *buffer, size_t bytes, int flags) {
  struct iovec part = {(void *)(uintptr_t)buffer, bytes};
  struct connection *connection = offered(descriptor, &part, 1);
  return taken(connection, real()->send(descriptor, buffer, bytes, flags));
}

INTERPOSED ssize_t sendto(int descriptor, const void *buffer, size_t bytes, int flags, const struct sockaddr *to,
                          socklen_t to_bytes) {
  struct iovec part = {(void *)(uintptr_t)buffer, bytes};
  struct connection *connection = offered(descriptor, &part, 1);
  return taken(connection, real()->sendto(descriptor, buffer, bytes, flags, to, to_bytes));
}

INTERPOSED ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags) {
  struct connection *connection = offered(descriptor, message->msg_iov, message->msg_iovlen);
  return taken(connection, real()->sendmsg(descriptor, message, flags));
}
