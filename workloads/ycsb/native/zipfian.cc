#include "zipfian.h"

#include <cmath>

#include "keys.h"

namespace duratune {
namespace {

constexpr double kAlpha = 1.0 / (1.0 - kZipfianConstant);
// ScrambledZipfianGenerator.ITEM_COUNT and ZETAN: the constant is zeta of exactly this count, as summed there.
constexpr uint64_t kScrambledItems = 10000000000u;
constexpr double kScrambledZeta = 26.46902820178302;

}  // namespace

double zeta(uint64_t from, uint64_t to, double theta, double sum) {
  for (uint64_t i = from; i < to; ++i) sum += 1 / std::pow(static_cast<double>(i + 1), theta);
  return sum;
}

Zipfian::Zipfian(uint64_t min, uint64_t max) : Zipfian(min, max, zeta(0, max - min + 1, kZipfianConstant, 0)) {}

Zipfian::Zipfian(uint64_t min, uint64_t max, double zetan)
    : base_(min), items_(max - min + 1), counted_(items_), zetan_(zetan) {
  set_eta();
}

void Zipfian::set_eta() {
  static const double zeta2 = zeta(0, 2, kZipfianConstant, 0);
  eta_ = (1 - std::pow(2.0 / static_cast<double>(items_), 1 - kZipfianConstant)) / (1 - zeta2 / zetan_);
}

uint64_t Zipfian::draw(double u, uint64_t items) const {
  static const double second = 1.0 + std::pow(0.5, kZipfianConstant);
  const double uz = u * zetan_;
  if (uz < 1.0) return base_;
  if (uz < second) return base_ + 1;
  return base_ + static_cast<uint64_t>(static_cast<double>(items) * std::pow(eta_ * u - eta_ + 1, kAlpha));
}

uint64_t Zipfian::at(double u) const { return draw(u, items_); }

uint64_t Zipfian::at_items(double u, uint64_t items) {
  if (items > counted_) {
    zetan_ = zeta(counted_, items, kZipfianConstant, zetan_);
    counted_ = items;
    set_eta();
  }
  return draw(u, items);
}

ScrambledZipfian::ScrambledZipfian(uint64_t min, uint64_t max)
    : min_(min), items_(max - min + 1), zipfian_(0, kScrambledItems, kScrambledZeta) {}

uint64_t ScrambledZipfian::at(double u) const { return min_ + fnv_hash(zipfian_.at(u)) % items_; }

}  // namespace duratune
