// What a plan says to people. Pure; any thread.

#ifndef GRADGATE_CLIENT_PLANNER_WORDS_H_
#define GRADGATE_CLIENT_PLANNER_WORDS_H_

#include <string>

namespace gradgate::planner {

struct Plan;

// Three digits: "54.6 s", "370 ms", "12.3 µs"; "12.3 GiB".
std::string Time(double seconds);
std::string Memory(double bytes);

// Why its best mode is the best, and what speaks against faster ones.
std::string Why(const Plan& plan, double tolerance);

// What to do.
std::string Advice(const Plan& plan);

// As `gradgatectl policy set` takes it; empty where the present mode is the best.
std::string Policy(const Plan& plan);

}  // namespace gradgate::planner

#endif  // GRADGATE_CLIENT_PLANNER_WORDS_H_
