#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "duration.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct NewArguments {
    Common common;
    std::string file;
};

struct ShowArguments {
    Common common;
    std::string key;
};

struct CertifyArguments {
    Common common;
    std::string root;
    std::string subject;
    Milliseconds lasting{0};
    std::uint64_t serial = 0;
    std::string output;
};

int run_new(const NewArguments& arguments) {
    constexpr const char* kVerb = "key new";
    const std::string public_file = arguments.file + ".pub";
    const auto generated = SigningKey::generate();
    if (!generated) return report_error(arguments.common, kVerb, generated.error());
    const SigningKey& key = *generated;
    // The public half goes first: on its own it harms nobody, and can be taken back.
    if (const auto saved = key.public_key().save(public_file); !saved) {
        return report_error(arguments.common, kVerb, saved.error());
    }
    if (const auto saved = key.save(arguments.file); !saved) {
        std::error_code ignored;
        std::filesystem::remove(public_file, ignored);
        return report_error(arguments.common, kVerb, saved.error());
    }
    if (arguments.common.json) {
        print_json({{"verb", kVerb},
                    {"ok", true},
                    {"file", arguments.file},
                    {"public_file", public_file},
                    {"id", key.public_key().id()},
                    {"public", key.public_key().to_text()}});
    } else if (!arguments.common.quiet) {
        fmt::print(
            "key {}\nprivate: {}  (for the trainer: --sign-key; keep it secret)\n"
            "public:  {}  (for replicas: --trust)\n",
            key.public_key().id(), printable(arguments.file), printable(public_file));
    }
    return 0;
}

void show_certificate(const Common& common, const Certificate& certificate) {
    if (common.json) {
        print_json({{"verb", "key show"},
                    {"ok", true},
                    {"kind", "certificate"},
                    {"id", certificate.subject.id()},
                    {"public", certificate.subject.to_text()},
                    {"serial", certificate.serial},
                    {"expires_ms", certificate.expires_ms},
                    {"root", certificate.root_id}});
        return;
    }
    const std::int64_t left_ms = certificate.expires_ms - system_clock()->now_ms();
    fmt::print("certificate for key {}\npublic:  {}\nserial:  {}\nroot:    {}\nexpires: {}\n",
               certificate.subject.id(), certificate.subject.to_text(), certificate.serial,
               certificate.root_id,
               left_ms <= 0 ? std::string("has expired")
                            : fmt::format("in {:.1f} days", static_cast<double>(left_ms) / 864e5));
}

int run_show(const ShowArguments& arguments) {
    constexpr const char* kVerb = "key show";
    std::string start(10, '\0');
    std::ifstream(arguments.key, std::ios::binary)
        .read(start.data(), static_cast<std::streamsize>(start.size()));
    if (start == "wisp-cert ") {
        const auto certificate = Certificate::load(arguments.key);
        if (!certificate) return report_error(arguments.common, kVerb, certificate.error());
        if (!arguments.common.quiet) show_certificate(arguments.common, *certificate);
        return 0;
    }
    const bool is_private = start == "-----BEGIN";
    Result<PublicKey> key;
    if (is_private) {
        const auto secret = SigningKey::load(arguments.key);
        if (!secret) return report_error(arguments.common, kVerb, secret.error());
        key = secret->public_key();
    } else {
        key = PublicKey::load(arguments.key);
    }
    if (!key) return report_error(arguments.common, kVerb, key.error());
    if (arguments.common.json) {
        print_json({{"verb", kVerb},
                    {"ok", true},
                    {"kind", is_private ? "private" : "public"},
                    {"id", key->id()},
                    {"public", key->to_text()}});
    } else if (!arguments.common.quiet) {
        fmt::print("{} {}\n", key->id(), key->to_text());
    }
    return 0;
}

Result<Certificate> certify(const CertifyArguments& arguments) {
    const auto root = SigningKey::load(arguments.root);
    if (!root) return std::unexpected(root.error());
    const auto subject = PublicKey::load(arguments.subject);
    if (!subject) return std::unexpected(subject.error());
    auto made = Certificate::make(*root, *subject, arguments.serial,
                                  system_clock()->now_ms() + arguments.lasting.count());
    if (!made || arguments.output.empty()) return made;
    if (const auto saved = made->save(arguments.output); !saved) {
        return std::unexpected(saved.error());
    }
    return made;
}

int run_certify(const CertifyArguments& arguments) {
    constexpr const char* kVerb = "key certify";
    const auto made = certify(arguments);
    if (!made) return report_error(arguments.common, kVerb, made.error());
    if (arguments.common.json) {
        print_json({{"verb", kVerb},
                    {"ok", true},
                    {"certificate", made->to_text()},
                    {"id", made->subject.id()},
                    {"serial", made->serial},
                    {"expires_ms", made->expires_ms},
                    {"root", made->root_id}});
    } else if (arguments.output.empty()) {
        fmt::print("{}\n", made->to_text());
    } else if (!arguments.common.quiet) {
        fmt::print("{}: root {} certifies key {}, serial {}\n", printable(arguments.output),
                   made->root_id, made->subject.id(), made->serial);
    }
    return 0;
}

void add_new(Command& parent, Outcome& outcome) {
    auto* verb = parent.add_subcommand("new", "Make a key pair");
    auto arguments = std::make_shared<NewArguments>();
    verb->add_option("file", arguments->file,
                     "Private key to write; its public half goes to FILE.pub")
        ->required();
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp key new trainer.key       # trainer.key, readable by you only, and trainer.key.pub)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run_new(*arguments); });
}

void add_show(Command& parent, Outcome& outcome) {
    auto* verb = parent.add_subcommand("show", "Print the id and public half of a key");
    auto arguments = std::make_shared<ShowArguments>();
    verb->add_option("key", arguments->key,
                     "Private key, .pub file, certificate, or a public key as text")
        ->required();
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp key show trainer.key
  wisp key show trainer.key.pub --json
  wisp key show trainer.cert)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run_show(*arguments); });
}

void add_certify(Command& parent, Outcome& outcome) {
    auto* verb = parent.add_subcommand("certify", "Let a root key vouch for a trainer's key");
    auto arguments = std::make_shared<CertifyArguments>();
    verb->add_option("--root", arguments->root, "Private key of the root")->required();
    verb->add_option("--subject", arguments->subject, "Public key to certify: file or text")
        ->required();
    add_duration(*verb, "--expires", arguments->lasting, "How long it is valid from now, e.g. 30d")
        ->required();
    verb->add_option("--serial", arguments->serial,
                     "Raise it with each certificate; replicas can refuse lower ones")
        ->required()
        ->check(not_negative());
    verb->add_option("-o,--output", arguments->output, "File to write; printed by default");
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp key certify --root root.key --subject trainer.key.pub --expires 30d --serial 1 -o t.cert)");
    verb->callback([arguments, &outcome] {
        if (arguments->lasting <= Milliseconds(0)) {
            refuse_usage("--expires", "a certificate must last longer than 0");
        }
        outcome.exit_code = run_certify(*arguments);
    });
}

}  // namespace

void add_key(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand("key", "Make, show and certify the keys that sign a run");
    verb->require_subcommand(1);
    add_new(*verb, outcome);
    add_show(*verb, outcome);
    add_certify(*verb, outcome);
    verb->footer(R"(Examples:
  wisp key new trainer.key
  wisp key show trainer.key.pub
  wisp key certify --root root.key --subject trainer.key.pub --expires 30d --serial 1 -o t.cert)");
}

}  // namespace wisp::cli
