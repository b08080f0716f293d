#include "plan.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "fault.h"

namespace duratune {
namespace {

// "flush@0.25,compact@0.5"
std::vector<Provocation> read_provocations(const std::string& text) {
  std::vector<Provocation> provocations;
  std::istringstream items(text);
  std::string item;
  while (std::getline(items, item, ',')) {
    const size_t at = item.find('@');
    char* end = nullptr;
    const std::string fraction = at == std::string::npos ? "" : item.substr(at + 1);
    const double value = std::strtod(fraction.c_str(), &end);
    const std::string what = item.substr(0, at);
    if (fraction.empty() || *end != '\0' || !(value >= 0 && value <= 1) || (what != "flush" && what != "compact")) {
      throw invalid_input("provoke item '" + item + "' is not flush@FRACTION or compact@FRACTION");
    }
    provocations.push_back({what, value});
  }
  std::stable_sort(provocations.begin(), provocations.end(),
                   [](const Provocation& a, const Provocation& b) { return a.fraction < b.fraction; });
  return provocations;
}

}  // namespace

Plan Plan::from_spec(const Spec& spec) {
  Plan plan;
  plan.threads = static_cast<uint32_t>(spec.integer("threads", 1, 1));
  if (plan.threads > 4096) throw invalid_input("threads is above 4096");
  plan.target_per_s = spec.number("target", 0);
  plan.seed = static_cast<uint64_t>(spec.integer("seed", 0, 0));
  plan.warmup_s = spec.number("warmup_s", 0);
  plan.measure_s = spec.number("measure_s", 0);
  plan.operations = static_cast<uint64_t>(spec.integer("operations", 0, 0));
  plan.stop_after = spec.truth("stop_after", false);
  plan.provocations = read_provocations(spec.text("provoke", ""));
  plan.flush_wal_every_ms = spec.integer("application.flush_wal_every_ms", 0, 0);
  plan.sync_wal_every_ms = spec.integer("application.sync_wal_every_ms", 0, 0);
  plan.ticker_ms = spec.integer("ticker_ms", 20, 0);
  if (spec.truth("ledger", true)) {
    plan.ledger_path = spec.require("ledger.path");
  } else {
    spec.find("ledger.path");
  }
  plan.lifeline_fd = static_cast<int>(spec.integer("lifeline.fd", -1, -1));
  if (!plan.provocations.empty() && plan.operations == 0) throw invalid_input("provoke needs operations");
  if (plan.stop_after && plan.measure_s == 0 && plan.operations == 0) {
    throw invalid_input("stop_after needs measure_s or operations");
  }
  return plan;
}

}  // namespace duratune
