// The stream of requests of one client: same seed, same client, same stream.
//
// What the stream cannot fix is which keys other clients have inserted by then: with inserts, a key that is not yet
// readable is drawn again. Each purpose has its own random stream, so that changes keys only.
#pragma once

#include <memory>
#include <optional>

#include "acknowledged_counter.h"
#include "random.h"
#include "workload.h"
#include "zipfian.h"

namespace duratune {

struct Request {
  Operation operation = Operation::read;
  uint64_t key = 0;
  uint64_t scan_length = 0;
  // The one field of a read with readallfields=false or an update with writeallfields=false; none: all fields.
  std::optional<size_t> field;
};

class Requests {
 public:
  // Clients count from 1.
  Requests(const Workload& workload, uint64_t seed, uint64_t client, uint64_t clients, AcknowledgedCounter& inserted);

  Request next();

 private:
  uint64_t next_key();
  int64_t draw_key();
  int64_t draw_hotspot();
  uint64_t next_scan_length();

  const Workload& workload_;
  AcknowledgedCounter& inserted_;
  Random operations_;
  Random keys_;
  uint64_t sequential_;
  uint64_t stride_;
  double exponential_gamma_ = 0;
  std::optional<ScrambledZipfian> scrambled_;
  std::optional<SkewedLatest> latest_;
  std::optional<Zipfian> scan_lengths_;
};

}  // namespace duratune
