// Prints what the generators give for stated inputs, so that tests can hold them against YCSB's own.
#pragma once

#include "spec.h"

namespace duratune {

// Reads vectors.generator and its inputs from the spec; emits one `vectors` event.
void print_vectors(const Spec& spec);

}  // namespace duratune
