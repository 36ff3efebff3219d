#include "client/cli/top_command.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cancellation.h"
#include "client/cli/interrupter.h"
#include "client/cli/top_live.h"
#include "client/cli/top_model.h"
#include "client/cli/top_source.h"
#include "client/cli/top_view.h"
#include "client/connection.h"

namespace gradgate::cli {
namespace {

bool IsSet(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool CanDraw() {
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && terminal != nullptr && *terminal != '\0' && std::strcmp(terminal, "dumb") != 0;
}

std::string Snapshot(const TopModel& model, const client::Connection& connection, const Options& options, size_t columns,
                     Charset charset) {
  TopFrame frame;
  frame.columns = columns;
  frame.address = connection.target().address;
  frame.now = absl::Now();
  frame.interval = options.top.interval;
  frame.charset = charset;
  TopPlace place;
  std::string text;
  for (const TopLine& line : TopView(model, frame, &place)) absl::StrAppend(&text, line.text, "\n");
  return text;
}

// `snapshots`: so many, 0: until a signal or the reader's end. Rates need two answers: the first one is not shown.
absl::Status RunPlain(const Options& options, const TopQuestion& question, Charset charset, client::Cancellation* cancel,
                      Output* output) {
  const auto connection = client::Connection::Create(options.client);
  if (!connection.ok()) return connection.status();
  TopModel model;
  const auto ask = [&] {
    TopRound round = AskTopRound(*connection, question, "", true, cancel);
    const absl::Status status = round.status;
    model.Add(std::move(round));
    return status;
  };
  if (absl::Status first = ask(); !first.ok()) return cancel->cancelled() ? absl::OkStatus() : first;
  absl::Status last;
  for (int64_t shown = 0; options.top.snapshots == 0 || shown < options.top.snapshots; ++shown) {
    if (cancel->Await(options.top.interval)) return absl::OkStatus();
    last = ask();
    if (cancel->cancelled()) return absl::OkStatus();
    if (!output->Write(
            absl::StrCat(shown == 0 ? "" : "\n", Snapshot(model, **connection, options, output->columns(), charset))))
      return output->status();
  }
  return last;
}

}  // namespace

absl::Status RunTop(const Options& options, Output* output) {
  const Charset charset = UseLocale();
  const TopQuestion question = {options.job, options.local ? v1::SCOPE_NODE : v1::SCOPE_JOB};
  if (options.top.snapshots == 0 && CanDraw()) {
    return RunTopLive(options.client, question, options.top.interval, {charset, !IsSet("NO_COLOR")});
  }
  client::Cancellation cancellation;
  const Interrupter interrupter(&cancellation);
  return RunPlain(options, question, charset, &cancellation, output);
}

}  // namespace gradgate::cli
