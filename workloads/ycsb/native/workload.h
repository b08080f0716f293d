// The core workload: which operation comes next, on which key (YCSB CoreWorkload). Keys of the spec are YCSB's own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "spec.h"

namespace duratune {

enum class Operation { read, update, insert, scan, read_modify_write };
constexpr size_t kOperations = 5;
// YCSB's names, in its fixed order of choice.
constexpr std::array<const char*, kOperations> kOperationNames = {"READ", "UPDATE", "INSERT", "SCAN",
                                                                  "READ-MODIFY-WRITE"};

enum class Distribution { uniform, zipfian, latest, hotspot, exponential, sequential };
enum class LengthDistribution { constant, uniform, zipfian, histogram };

struct Workload {
  static Workload from_spec(const Spec& spec);

  uint64_t record_count = 0;
  uint64_t operation_count = 0;
  uint64_t insert_start = 0;
  uint64_t insert_count = 0;
  std::array<double, kOperations> proportions{};  // divided by their sum
  Distribution request_distribution = Distribution::uniform;
  double hotspot_data_fraction = 0.2;
  double hotspot_operation_fraction = 0.8;
  double exponential_percentile = 95;
  double exponential_fraction = 0.8571428571;
  bool hashed_keys = true;
  int64_t zero_padding = 1;
  uint64_t scan_length_min = 1;
  uint64_t scan_length_max = 1000;
  bool scan_length_zipfian = false;

  std::vector<std::string> field_names;
  uint64_t field_length = 100;
  uint64_t field_length_min = 1;
  LengthDistribution field_length_distribution = LengthDistribution::constant;
  std::string field_length_histogram;
  bool read_all_fields = true;
  bool write_all_fields = false;
  bool data_integrity = false;

  // Keys that YCSB expects the run to insert: they widen the zipfian's range.
  uint64_t expected_new_keys() const;
};

// The operation that u, uniform in [0, 1), chooses.
Operation choose_operation(const Workload& workload, double u);

}  // namespace duratune
