// Recovers one crash state and tells what it holds.
//
// Two starts: with the candidate's settings, which is the recovery that is judged, and with neutral ones, because
// settings such as paranoid_checks=false would hide from the second look what the first let pass. Whatever the engine
// refuses or gets wrong is a finding, not a fault of this program. Where no file is named for what the neutral ones show
// (rows.neutral), there is only the first start.
//
// Not covered: damage that a scan with checksums and VerifyChecksum() does not see.
#pragma once

#include <string>

#include "spec.h"

namespace duratune {

// Verifies one state in a child process, so that a crash of the engine is a finding too. Emits `verified`, with the
// child's pid.
void verify_state(const std::string& spec_path);

// The same for every spec path on stdin, one a line, each in a child of this warm process, one after the other.
void verify_states_from_stdin();

}  // namespace duratune
