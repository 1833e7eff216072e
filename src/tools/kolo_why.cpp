// SPDX-License-Identifier: Apache-2.0
//
// kolo-why: why a job failed, hangs, or was killed, from the recorders that its ranks leave (KOLO_RECORDER).
//
//     kolo-why                 the newest job of this user that runs, or did not end in order
//     kolo-why DIR             the job in DIR, or the newest in it
//     kolo-why --json [DIR]    the same for programs
//     kolo-why --ranks [DIR]   a line for each rank, too
//     kolo-why --fr-trace TO [DIR]   what PyTorch's torchfrtrace reads, into the folder TO
#include <exception>
#include <iostream>
#include <string>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <kolo/kolo.hpp>

#include "end_of_output.hpp"

namespace {

namespace po = boost::program_options;

struct Flags {
  std::string directory;
  bool json = false;
  bool ranks = false;
  std::string flight_records;
  bool help = false;
  bool version = false;
};

constexpr const char* kHelp =
    R"(kolo-why: why a job failed, hangs, or was killed

usage: kolo-why [--json] [--ranks] [--fr-trace TO] [DIR]

  DIR      the job's directory of recorders, or one of jobs, whose newest is taken; files of its owner are read. The
           default is where jobs of this user record (KOLO_RECORDER)
  --ranks  a line for each rank, too
  --json   everything, for programs
  --fr-trace TO
           writes the collectives of each rank into the folder TO, as `torchfrtrace TO` of PyTorch reads them
  --version
           the library's version

The job may still run. Jobs that ended in order leave nothing.

exit status: 0 nothing is wrong, 1 something is, 2 wrong flags, there is no job, or the output cannot be written
)";

Flags parse(int argc, char** argv) {
  Flags flags;
  po::options_description all;
  all.add_options()                                   //
      ("help,h", po::bool_switch(&flags.help))        //
      ("version", po::bool_switch(&flags.version))    //
      ("json", po::bool_switch(&flags.json))          //
      ("ranks", po::bool_switch(&flags.ranks))        //
      ("fr-trace", po::value(&flags.flight_records))  //
      ("directory", po::value(&flags.directory));
  po::positional_options_description positional;
  positional.add("directory", 1);
  po::variables_map values;
  po::store(po::command_line_parser(argc, argv).options(all).positional(positional).run(), values);
  po::notify(values);
  return flags;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Flags flags = parse(argc, argv);
    if (flags.help || flags.version) {
      std::cout << (flags.help ? std::string(kHelp) : std::string("kolo-why ") + kolo::version() + "\n");
      tools::flush_output();
      return 0;
    }
    const kolo::JobReport report = kolo::explain_job(flags.directory);
    if (!flags.flight_records.empty()) kolo::write_flight_records(flags.flight_records, report.directory);
    if (flags.json) {
      // In ASCII: a terminal obeys some characters of names.
      std::cout << nlohmann::ordered_json::parse(kolo::to_json(report)).dump(2, ' ', true) << "\n";
    } else {
      std::cout << kolo::to_text(report, flags.ranks);
    }
    tools::flush_output();
    return report.verdict == "healthy" ? 0 : 1;
  } catch (const po::error& error) {
    std::cerr << "kolo-why: " << error.what() << " (see --help)\n";
    return 2;
  } catch (const kolo::Error& error) {
    std::cerr << "kolo-why: " << error.status().message() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "kolo-why: " << error.what() << "\n";
    return 2;
  }
}
