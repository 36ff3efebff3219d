#include "client/cli/options.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "client/cli/completion.h"
#include "client/cli/exit_code.h"
#include "client/cli/help.h"
#include "client/cli/policy_options.h"
#include "client/cli/user_id.h"
#include "client/target.h"

namespace gradgate::cli {
namespace {

constexpr char kAbout[] =
    "Shows what gradgated knows of the gradient synchronisation of jobs, on all nodes of the daemon's store.";

constexpr char kFooter[] = R"(Exit codes:
  0  done; also a watch ended by Ctrl-C
  1  the daemon answered with an error or not in time, TLS with it failed, a
     policy was not adopted, or the output could not be written
  2  the command line is wrong
  3  no gradgated there, or it went away
  4  no such job
  5  doctor: something is wrong with the job

Where the daemon is looked for, first that is there: --target or --dir,
$GRADGATE_DIR, /run/gradgate, $XDG_RUNTIME_DIR/gradgate. JOB is a job name, a
run id, or at least its 6 first digits; UID/JOB, or --user, that of one user. On
a terminal tables are fitted to its width; a pipe and --json get all columns.
gradgatectl COMMAND --help tells more.)";

constexpr char kCommandFooter[] = "gradgatectl --help lists the options of all commands, and the exit codes.";
constexpr char kDoctorFooter[] = R"(Exit code 5: something is wrong with the job, a verdict worse than a notice.
gradgatectl --help lists the options of all commands, and the other exit codes.)";

constexpr double kMinIntervalSeconds = 0.1;
constexpr double kMinTimeoutSeconds = 0.001;
constexpr double kMaxTimeoutSeconds = 86400;

// CLI11's own range check lets "nan" pass.
CLI::Validator SecondsFrom(double least) {
  const auto check = [least](const std::string& text) -> std::string {
    double seconds;
    if (absl::SimpleAtod(text, &seconds) && seconds >= least && seconds <= kMaxTimeoutSeconds) return "";
    return absl::StrCat("\"", text, "\" is not a number of seconds from ", least, " to ", kMaxTimeoutSeconds);
  };
  return CLI::Validator(check, "SECONDS");
}

Leave Usage(absl::string_view message) {
  return {kExitUsage, absl::StrCat(message, "; gradgatectl --help tells how it is called")};
}

void AddGlobals(CLI::App& app, Options& options, std::string& directory, std::string& user, double& timeout_seconds) {
  CLI::Option* target =
      app.add_option("--target", options.client.target, "Where gradgated listens: unix:PATH, HOST:PORT or [V6]:PORT");
  app.add_option("--dir", directory, "Directory of gradgated's sockets")
      ->type_name("DIR")
      ->excludes(target)
      ->check([](const std::string& text) { return text.empty() ? std::string("the directory is empty") : std::string(); });
  app.add_option("--timeout", timeout_seconds, "Seconds to wait for an answer")
      ->capture_default_str()
      ->check(SecondsFrom(kMinTimeoutSeconds));
  app.add_flag("--local", options.local, "Only what the daemon's own node has; other nodes are not asked");
  app.add_option("--user", user, "Name or uid of whose JOB it is, where several users have one of that name");
  app.add_flag("--json", options.json, "Print the whole answer as JSON; watch: an object a line");
  app.add_option("--ca", options.client.tls.ca_file,
                 "PEM file of the CA that signed the daemon's certificate; for another machine")
      ->type_name("FILE");
  app.add_option("--cert", options.client.tls.cert_file, "PEM file of the client's certificate")->type_name("FILE");
  app.add_option("--key", options.client.tls.key_file, "PEM file of the client's key")->type_name("FILE");
  app.set_version_flag("--version", "gradgatectl " GRADGATE_VERSION, "Print the version and exit");
}

// The words after JOB, and what is parsed from them.
struct PolicyWords {
  std::vector<std::string> changes;
  double wait_seconds = 60;
};

CLI::App* AddCommand(CLI::App& app, const char* name, const char* about, Options& options, Command command) {
  CLI::App* sub = app.add_subcommand(name, about);
  sub->fallthrough();  // global options may stand behind the command
  sub->callback([&options, command] { options.command = command; });
  if (command == Command::kJobs || command == Command::kCerts || command == Command::kNodes) return sub;
  CLI::Option* job = sub->add_option("JOB", options.job, "Job name, run id, or its 6 first digits");
  if (command != Command::kPlan && command != Command::kTop) job->required();
  return sub;
}

void AddPolicy(CLI::App& app, Options& options, PolicyWords& words) {
  CLI::App* policy = app.add_subcommand("policy", "Show, change or watch how a running job synchronises its gradients");
  policy->fallthrough();
  policy->require_subcommand(1);
  AddCommand(*policy, "get", "Show the policy, how far it is, and where each rank is with it", options, Command::kPolicyGet);
  AddCommand(*policy, "watch", "Show each change, until the job ends or Ctrl-C", options, Command::kPolicyWatch);
  CLI::App* set =
      AddCommand(*policy, "set", "Propose a policy, and wait until all ranks adopt it at one window, or one rejects it",
                 options, Command::kPolicySet);
  set->add_option(
         "CHANGE", words.changes,
         "What changes: mode=auto|window|window_replica|every_micro_step, bucket=SIZE, wire=gradient|bf16|fp16, "
         "reshard=every_micro_step|window, enforcement=audit|enforce; =given puts it back to what the trainers were given")
      ->type_name(absl::StrCat("CHANGE:{", absl::StrJoin(PolicyChanges(), ","), "}"))
      ->required();
  set->add_option("--wait", words.wait_seconds, "Seconds to wait for the job; 0: not at all")
      ->capture_default_str()
      ->check(SecondsFrom(0));
  set->add_option_function<std::string>(
      "--actor", [&options](const std::string& name) { options.policy.set_actor(name); },
      "Who, for the record; default: user@host");
  set->add_option_function<int64_t>(
         "--expected-version", [&options](int64_t version) { options.policy.set_expected_version(version); },
         "Only if this is the present version")
      ->check(CLI::Range(int64_t{1}, INT64_MAX));
  set->add_flag_callback(
      "--dry-run", [&options] { options.policy.set_validate_only(true); }, "Check all, propose nothing");
}

void AddSeeing(CLI::App& app, Options& options) {
  CLI::App* top =
      AddCommand(app, "top", "Show jobs and ranks as they go; to a pipe as plain text. Rates are of the last 10 to 60 seconds",
                 options, Command::kTop);
  top->add_option_function<double>(
         "--interval", [&options](double seconds) { options.top.interval = absl::Seconds(seconds); },
         "Seconds between two answers; default: 2")
      ->check(SecondsFrom(kMinIntervalSeconds));
  CLI::Option* count = top->add_option("-n,--snapshots", options.top.snapshots, "Print so many, as plain text, and end")
                           ->check(CLI::Range(int64_t{1}, int64_t{1000000}));
  top->add_flag_callback(
         "--once", [&options] { options.top.snapshots = 1; }, "The same as -n 1")
      ->excludes(count);
  CLI::App* report = AddCommand(app, "report", "Write what is known of a job into one HTML file that needs nothing else",
                                options, Command::kReport);
  report->add_option("-o,--output", options.report.output, "Where to; - is standard output")->type_name("FILE")->required();
  report->add_option("--windows", options.report.window_count, "Of the latest N windows")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{10000}));
}

// Why a command line that CLI11 took is wrong all the same; empty: it is not.
std::string SeeingError(const Options& options) {
  if (options.json && options.command == Command::kTop)
    return "top has no --json: gradgatectl status JOB --json has the counts";
  if (options.json && options.command == Command::kReport) return "report has no --json: status, windows, doctor and plan have";
  if (options.command == Command::kReport && options.report.output.empty()) return "--output is empty";
  return "";
}

}  // namespace

std::variant<Options, Leave> ParseOptions(int argc, const char* const* argv) {
  Options options;
  std::string directory, user;
  double timeout_seconds = absl::ToDoubleSeconds(options.client.timeout);
  int64_t first_index = 0;

  CLI::App app(kAbout, "gradgatectl");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kCommandFooter);  // of the commands, which take it over when they are added
  app.require_subcommand(1);
  AddGlobals(app, options, directory, user, timeout_seconds);
  AddCommand(app, "jobs", "List jobs, the latest first", options, Command::kJobs);
  AddCommand(app, "nodes", "List the daemons of the store: who answers, how soon, and whose ranks are there", options,
             Command::kNodes);
  AddCommand(app, "status", "Show the counts of a job: what is wrong, totals, ranks, collectives", options, Command::kStatus);
  CLI::App* windows =
      AddCommand(app, "windows", "List closed windows, a row for each rank, the latest last", options, Command::kWindows);
  windows->add_option("--last", options.last, "Only the latest N windows")->check(CLI::Range(int64_t{1}, int64_t{1000000}));
  CLI::App* watch =
      AddCommand(app, "watch", "Show windows as they close, until the job ends or Ctrl-C", options, Command::kWatch);
  CLI::Option* from =
      watch->add_option("--from", first_index, "Begin at window N, if it is still kept; else with what closes next")
          ->check(CLI::Range(int64_t{0}, INT64_MAX));
  AddSeeing(app, options);
  CLI::App* plan = AddCommand(
      app, "plan", "Predict what each sync mode would cost: a job by its measurements, or given numbers with no daemon there",
      options, Command::kPlan);
  AddPlanOptions(plan, &options.plan);
  CLI::App* doctor =
      AddCommand(app, "doctor", "Say what is wrong with a job, by rank and window, and what to do", options, Command::kDoctor);
  doctor->footer(kDoctorFooter);
  doctor->add_flag("--evidence", options.evidence, "With --json: also print what the verdicts were made of");

  PolicyWords policy_words;
  AddPolicy(app, options, policy_words);

  CLI::App* certs = AddCommand(
      app, "certs", "Make certificates for daemons on several nodes and for who asks them, and print how to use them", options,
      Command::kCerts);
  certs->add_option("DIR", options.certs.directory, "Where they go; an authority that is there is used")->required();
  certs->add_option("--node", options.certs.nodes, "NAME, or NAME=HOST,HOST… with what others connect to; once for each node")
      ->delimiter('\0')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  certs->add_option("--client", options.certs.clients, "NAME, or NAME=operator for one that may set policies; once for each")
      ->delimiter('\0')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  certs->add_option("--etcd", options.certs.etcd_hosts, "HOST of an etcd, for a set of its own; once for each")
      ->delimiter('\0')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  certs->add_option("--days", options.certs.days, "How long they last")->capture_default_str()->check(CLI::Range(1, 3650));

  std::string shell;
  app.add_subcommand("completion", "Print what a shell needs to complete gradgatectl's commands and options")
      ->add_option("SHELL", shell, "bash, zsh or fish; as in: source <(gradgatectl completion bash)")
      ->required()
      ->check(CLI::IsMember({kBash, kZsh, kFish}));
  app.footer(kFooter);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return Leave{kExitUsage, UsageError(app, error)};
    std::ostringstream text, ignored;
    app.exit(error, text, ignored);
    return Leave{kExitOk, text.str()};
  }
  if (!shell.empty()) return Leave{kExitOk, CompletionScript(app, shell)};
  if (from->count() > 0) options.first_index = first_index;
  if (options.command == Command::kPolicySet) {
    const auto policy = ParsePolicy(policy_words.changes);
    if (!policy.ok()) return Usage(policy.status().message());
    options.policy.MergeFrom(*policy);
    options.wait = absl::Seconds(policy_words.wait_seconds);
  }
  options.client.timeout = absl::Seconds(timeout_seconds);
  if (!directory.empty()) {
    const auto target = client::TargetInDirectory(directory);
    if (!target.ok()) return Usage(target.status().message());
    options.client.target = target->GrpcName();
  }
  if (std::string error = SeeingError(options); !error.empty()) return Usage(error);
  const bool without_job = options.command == Command::kJobs || options.command == Command::kTop ||
                           options.command == Command::kPlan || options.command == Command::kCerts ||
                           options.command == Command::kNodes;
  if (options.job.empty()) {
    if (!without_job) return Usage("JOB is empty");
    return user.empty() ? std::variant<Options, Leave>(options) : Usage("--user tells whose JOB is meant, and there is none");
  }
  if (!user.empty()) {
    const auto user_id = UserId(user);
    if (!user_id.ok()) return Usage(user_id.status().message());
    options.job = absl::StrCat(*user_id, "/", options.job);
  }
  return options;
}

}  // namespace gradgate::cli
