// Ties this process to its starter: when the other end of a pipe closes, however the starter died, it kills itself.
#pragma once

namespace duratune {

// Starts the watching thread; a negative descriptor means that there is none.
void hold_lifeline(int fd);

}  // namespace duratune
