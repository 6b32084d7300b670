#include <gtest/gtest.h>

#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

Bytes file_of(std::string_view json, std::size_t data_bytes = 0) {
    Bytes file;
    append_fixed(file, std::uint64_t{json.size()});
    append_text(file, json);
    file.resize(file.size() + data_bytes);
    return file;
}

struct BadHeader {
    const char* why;
    std::string json;
    std::size_t data_bytes;
};

std::string tensor(std::string_view fields) {
    return "{\"t\":{" + std::string(fields) + "}}";
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
    Rng rng(1);
    const std::vector<Tensor> model = small_model(rng);
    const Metadata metadata = {{"a", "1"}, {"first", "ü \"quoted\" \n"}, {"z", ""}};
    const Bytes file = safetensors_file(model, metadata);
    EXPECT_EQ(load_le<std::uint64_t>(file.data()) % 8, 0U) << "padded to whole words";
    const SafetensorsHeader header = value_of(parse_safetensors(file, "f"));
    EXPECT_EQ(header.metadata, metadata);
    ASSERT_EQ(header.entries.size(), model.size());
    for (std::size_t i = 0; i < model.size(); ++i) {
        EXPECT_EQ(header.entries[i].info, model[i].info);
        EXPECT_EQ(header.entries[i].end - header.entries[i].begin, model[i].bytes.size());
    }
    ASSERT_NE(header.find("b.bias"), nullptr);
    EXPECT_EQ(header.find("b.bias")->info.dtype, Dtype::kF32);
    EXPECT_EQ(header.find("nothing"), nullptr);
}

TEST(Safetensors, WritesTheFirstKeyFirst) {
    const Bytes file = write_safetensors_header({}, {{"a", "1"}, {"m", "2"}, {"z", "3"}}, "m");
    const std::string text(reinterpret_cast<const char*>(file.data()) + 8, file.size() - 8);
    EXPECT_TRUE(text.starts_with(R"({"__metadata__":{"m":"2","a":"1","z":"3"}})")) << text;
}

TEST(Safetensors, TakesAnyOrderOfFieldsAndTrailingSpace) {
    const auto json = R"({"t":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"}}    )";
    EXPECT_EQ(outcome_of(parse_safetensors(file_of(json, 4), "f")), "ok");
    EXPECT_EQ(outcome_of(parse_safetensors(file_of("{}"), "f")), "ok") << "no tensors at all";
}

TEST(Safetensors, TakesTensorsInTheOrderOfTheirData) {
    const auto json = R"({"z":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                      R"("e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})";
    const SafetensorsHeader header = value_of(parse_safetensors(file_of(json, 3), "f"));
    ASSERT_EQ(header.entries.size(), 3U);
    EXPECT_EQ(header.entries[0].info.name, "z");
    EXPECT_EQ(header.entries[1].info.name, "e");
    EXPECT_EQ(header.entries[2].info.name, "a");
}

TEST(Safetensors, RejectsFilesThatEndInsideTheirHeader) {
    const Bytes file = file_of(tensor(R"("dtype":"U8","shape":[3],"data_offsets":[0,3])"), 3);
    for (std::size_t size = 0; size < file.size(); ++size) {
        const auto result = parse_safetensors(std::span(file).first(size), "f");
        EXPECT_EQ(outcome_of(result), "corrupt") << size;
    }
    Bytes longer = file;
    longer.push_back({});
    EXPECT_EQ(outcome_of(parse_safetensors(longer, "f")), "corrupt");
}

TEST(Safetensors, RejectsAHeaderBeyondTheLimitBeforeReadingIt) {
    for (const std::uint64_t size :
         {std::uint64_t{100'000'001}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
        Bytes file = file_of("{}");
        store_le(file.data(), size);
        const auto result = parse_safetensors(file, "f");
        EXPECT_EQ(outcome_of(result), "corrupt");
        EXPECT_NE(text_of(result).find("at most"), std::string::npos);
    }
}

TEST(Safetensors, RefusesAnUnknownDtypeAsUnsupported) {
    const auto json = tensor(R"("dtype":"F128","shape":[1],"data_offsets":[0,16])");
    EXPECT_EQ(outcome_of(parse_safetensors(file_of(json, 16), "f")), "unsupported");
}

TEST(Safetensors, RejectsWhatBreaksARule) {
    const std::string good = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
    const std::string good_tensor = "{" + good + "}";
    const std::vector<BadHeader> cases = {
        {"white space before", " {}", 0},
        {"an array", "[]", 0},
        {"empty", "", 0},
        {"not JSON", "{\"t\"", 0},
        {"text behind", "{} x", 0},
        {"duplicate tensor", "{\"t\":" + good_tensor + ",\"t\":" + good_tensor + "}", 1},
        {"duplicate metadata", R"({"__metadata__":{},"__metadata__":{}})", 0},
        {"duplicate metadata key", R"({"__metadata__":{"a":"1","a":"1"}})", 0},
        {"duplicate field", tensor(good + R"(,"dtype":"U8")"), 1},
        {"unknown field", tensor(good + R"(,"more":1)"), 1},
        {"field missing", tensor(R"("dtype":"U8","shape":[1])"), 1},
        {"tensor without a name", "{\"\":" + good_tensor + "}", 1},
        {"metadata of numbers", R"({"__metadata__":{"a":1}})", 0},
        {"metadata of null", R"({"__metadata__":{"a":null}})", 0},
        {"metadata nested", R"({"__metadata__":{"a":{}}})", 0},
        {"metadata a string", R"({"__metadata__":"a"})", 0},
        {"tensor a number", R"({"t":1})", 0},
        {"tensor an array", R"({"t":[]})", 0},
        {"dtype a number", tensor(R"("dtype":8,"shape":[1],"data_offsets":[0,1])"), 1},
        {"dtype in an array", tensor(R"("dtype":["U8"],"shape":[1],"data_offsets":[0,1])"), 1},
        {"shape a number", tensor(R"("dtype":"U8","shape":1,"data_offsets":[0,1])"), 1},
        {"shape nested", tensor(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])"), 1},
        {"shape of strings", tensor(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])"), 1},
        {"negative extent", tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"), 1},
        {"fraction", tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"), 1},
        {"exponent", tensor(R"("dtype":"U8","shape":[1e0],"data_offsets":[0,1])"), 1},
        {"above 2^64",
         tensor(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])"), 1},
        {"boolean", tensor(R"("dtype":"U8","shape":[true],"data_offsets":[0,1])"), 1},
        {"overflow",
         tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0},
        {"bits overflow",
         tensor(R"("dtype":"U8","shape":[2305843009213693952],"data_offsets":[0,0])"), 0},
        {"half a byte", tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1},
        {"one offset", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), 1},
        {"three offsets", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"), 1},
        {"hole in front", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2},
        {"backwards", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1},
        {"another length", tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,1])"), 1},
        {"file too short", tensor(good), 0},
        {"file too long", tensor(good), 2},
        {"overlap",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3},
        {"hole between",
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
         3},
        {"broken UTF-8", "{\"\xFF\":" + good_tensor + "}", 1},
        {"long name", "{\"" + std::string(4097, 'n') + "\":" + good_tensor + "}", 1},
    };
    for (const BadHeader& bad : cases) {
        const auto result = parse_safetensors(file_of(bad.json, bad.data_bytes), "f");
        EXPECT_EQ(outcome_of(result), "corrupt") << bad.why;
    }
}

TEST(Safetensors, RejectsMoreThan64Dimensions) {
    const auto of_rank = [](std::size_t rank) {
        std::string shape = "1";
        for (std::size_t i = 1; i < rank; ++i) shape += ",1";
        return file_of(tensor(R"("dtype":"U8","data_offsets":[0,1],"shape":[)" + shape + "]"), 1);
    };
    EXPECT_EQ(outcome_of(parse_safetensors(of_rank(64), "f")), "ok");
    EXPECT_EQ(outcome_of(parse_safetensors(of_rank(65), "f")), "corrupt");
}

TEST(Safetensors, RejectsDeepNestingWithoutFollowingIt) {
    const std::string deep = "{\"t\":" + std::string(1'000'000, '[');
    EXPECT_EQ(outcome_of(parse_safetensors(file_of(deep), "f")), "corrupt");
}

TEST(Safetensors, EscapesForeignTextInItsErrors) {
    const auto result = parse_safetensors(file_of(tensor("\"\\u001b[2J\":1")), "evil\x1B[2J");
    EXPECT_EQ(text_of(result).find('\x1B'), std::string::npos);
}

}  // namespace
}  // namespace wisp::testing
