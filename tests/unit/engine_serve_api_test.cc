// SPDX-License-Identifier: Apache-2.0
//
// The API over a scripted Service: statuses, parameters, shapes, streams, clients that leave.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "engine/serve/api.h"
#include "models/chat/prompt.h"
#include "models/tokenizer/tokenizer.h"

namespace {

using namespace pn;
using Json = nlohmann::ordered_json;

// A vocabulary of bytes, so that every text has ids.
std::unique_ptr<tok::Tokenizer> byte_tokenizer() {
  tok::Vocabulary v;
  v.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>"};
  v.types = {2, 3, 3};
  char name[8];
  for (int i = 0; i < 256; ++i) {
    std::snprintf(name, sizeof name, "<0x%02X>", i);
    v.tokens.emplace_back(name);
    v.types.push_back(6);
  }
  v.scores.assign(v.tokens.size(), 0.0f);
  v.add_space_prefix = false;
  auto made = tok::Tokenizer::create(std::move(v));
  REQUIRE(made);
  return std::move(*made);
}

// Answers "Hi" and "there" in two deltas, or holds when told to.
class ScriptedService final : public engine::Service {
 public:
  ScriptedService() : tokenizer_(byte_tokenizer()) {
    auto made = chat::Template::parse(std::string(chat::chatml_template()));
    REQUIRE(made);
    template_ = std::make_unique<chat::Template>(std::move(*made));
    status.name = "demo";
    status.aliases = {"default"};
    status.state = engine::ModelState::ready;
    status.context = 200;
  }
  std::vector<engine::ModelStatus> models() const override { return {status}; }
  std::optional<engine::ModelStatus> model(const std::string& name) const override {
    if (name.empty() || name == "demo" || name == "default") return status;
    return std::nullopt;
  }
  const tok::Tokenizer* tokenizer(const std::string&) const override { return tokenizer_.get(); }
  const chat::Template* chat_template(const std::string&) const override { return template_.get(); }
  Result<uint64_t> start(const std::string&, engine::GenerateRequest request,
                         std::shared_ptr<engine::Listener> listener) override {
    last = std::move(request);
    if (refuse) return tl::unexpected<Error>(*refuse);
    if (hold) {
      held = std::move(listener);
      return 7;
    }
    engine::TokenInfo one{5, "Hi", -0.5f, {{5, -0.5f}, {6, -1.5f}}};
    listener->delta({"Hi", {one}});
    listener->delta({" there", {}});
    engine::Finished end;
    end.reason = reason;
    end.error = error;
    end.prompt_tokens = 3;
    end.completion_tokens = 2;
    listener->finished(end);
    return 7;
  }
  void cancel(uint64_t id) override { cancelled = id; }
  void wait_loaded(uint64_t) override {}
  void drain(uint64_t) override {}

  engine::ModelStatus status;
  engine::GenerateRequest last;
  std::optional<Error> refuse, error;
  engine::Finish reason = engine::Finish::stop;
  bool hold = false;
  std::shared_ptr<engine::Listener> held;
  uint64_t cancelled = 0;

 private:
  std::unique_ptr<tok::Tokenizer> tokenizer_;
  std::unique_ptr<chat::Template> template_;
};

struct Recorded final : serve::Exchange {
  void respond(serve::HttpResponse r) override { response = std::move(r), ++answers; }
  void start_stream(serve::HttpResponse r) override { response = std::move(r), ++answers; }
  void write(std::string part) override { stream += part; }
  void finish_stream() override { finished = true; }
  void on_gone(std::function<void()> callback) override { gone = std::move(callback); }

  serve::HttpResponse response;
  std::string stream;
  int answers = 0;
  bool finished = false;
  std::function<void()> gone;
};

struct Rig {
  ScriptedService service;
  serve::Api api{service, {}};

  std::shared_ptr<Recorded> send(const std::string& method, const std::string& path,
                                 const std::string& body = "") {
    auto exchange = std::make_shared<Recorded>();
    serve::HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    api.handle(std::move(request), exchange);
    return exchange;
  }
  std::shared_ptr<Recorded> chat(const std::string& extra) {
    return send("POST", "/v1/chat/completions",
                R"({"messages":[{"role":"user","content":"hello"}])" + extra + "}");
  }
};

Json error_of(const std::shared_ptr<Recorded>& e) { return Json::parse(e->response.body)["error"]; }

std::vector<Json> events(const std::string& stream) {
  std::vector<Json> out;
  size_t at = 0;
  while (at < stream.size()) {
    const size_t end = stream.find("\n\n", at);
    const std::string line = stream.substr(at, end - at);
    REQUIRE(line.rfind("data: ", 0) == 0);
    if (line != "data: [DONE]") out.push_back(Json::parse(line.substr(6)));
    at = end + 2;
  }
  return out;
}

}  // namespace

TEST_CASE("a whole chat answer has OpenAI's shape") {
  Rig rig;
  const auto e = rig.chat("");
  CHECK(e->response.status == 200);
  const Json body = Json::parse(e->response.body);
  CHECK(body["object"] == "chat.completion");
  CHECK(body["model"] == "demo");
  CHECK(body["choices"][0]["message"]["content"] == "Hi there");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["usage"]["total_tokens"] == 5);
}

TEST_CASE("a stream opens with the role, ends with a reason and the mark") {
  Rig rig;
  const auto e = rig.chat(R"(,"stream":true,"stream_options":{"include_usage":true})");
  CHECK(e->finished);
  CHECK(e->response.content_type.rfind("text/event-stream", 0) == 0);
  CHECK(e->stream.find("data: [DONE]\n\n") == e->stream.size() - 14);
  const auto list = events(e->stream);
  REQUIRE(list.size() == 5);
  CHECK(list[0]["choices"][0]["delta"]["role"] == "assistant");
  CHECK(list[1]["choices"][0]["delta"]["content"] == "Hi");
  CHECK(list[3]["choices"][0]["finish_reason"] == "stop");
  CHECK(list[4]["choices"].empty());
  CHECK(list[4]["usage"]["completion_tokens"] == 2);
  const auto plain = rig.chat(R"(,"stream":true)");
  for (const Json& chunk : events(plain->stream)) CHECK(!chunk.contains("usage"));
}

TEST_CASE("every accepted parameter reaches the engine") {
  Rig rig;
  rig.chat(R"(,"temperature":0.25,"top_p":0.5,"min_p":0.125,"top_k":7,"seed":42,"max_tokens":9,
             "stop":["x","yy"],"logit_bias":{"5":-100},"presence_penalty":1,"frequency_penalty":0.5,
             "repeat_penalty":1.5,"repeat_last_n":-1,"logprobs":true,"top_logprobs":2,
             "ignore_eos":true)");
  const engine::GenerateRequest& r = rig.service.last;
  CHECK(r.sampling.temperature == 0.25f);
  CHECK(r.sampling.top_p == 0.5f);
  CHECK(r.sampling.min_p == 0.125f);
  CHECK(r.sampling.top_k == 7);
  CHECK(r.sampling.seed == 42);
  CHECK(r.sampling.presence_penalty == 1.0f);
  CHECK(r.sampling.frequency_penalty == 0.5f);
  CHECK(r.sampling.repeat_penalty == 1.5f);
  CHECK(r.sampling.penalty_tokens == UINT32_MAX);
  CHECK(r.sampling.bias == std::vector<std::pair<int32_t, float>>{{5, -100.0f}});
  CHECK(r.max_tokens == 9);
  CHECK(r.stop == std::vector<std::string>{"x", "yy"});
  CHECK(r.logprobs);
  CHECK(r.top_logprobs == 2);
  CHECK(r.ignore_eos);
}

TEST_CASE("what cannot be honoured is a 400 that names it") {
  Rig rig;
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"(,"frobnicate":1)", "frobnicate"},
      {R"(,"temperature":"hot")", "temperature"},
      {R"(,"temperature":9)", "temperature"},
      {R"(,"n":2)", "n"},
      {R"(,"tools":[{"type":"function"}])", "tools"},
      {R"(,"tool_choice":"required")", "tool_choice"},
      {R"(,"response_format":{"type":"json_object"})", "response_format"},
      {R"(,"stop":[""])", "stop"},
      {R"(,"max_tokens":0)", "max_tokens"},
      {R"(,"max_tokens":1.5)", "max_tokens"},
      {R"(,"max_tokens":5,"max_completion_tokens":6)", "max_completion_tokens"},
      {R"(,"logit_bias":{"abc":1})", "logit_bias"},
      {R"(,"top_logprobs":3)", "top_logprobs"},
      {R"(,"stream_options":{"include_usage":true})", "stream_options"},
      {R"(,"seed":18446744073709551615)", "seed"},
      {R"(,"store":true)", "store"}};
  for (const auto& one : cases) {
    const char* const extra = one.first;
    const char* const param = one.second;
    CAPTURE(extra);
    const auto e = rig.chat(extra);
    CHECK(e->response.status == 400);
    CHECK(error_of(e)["param"] == param);
    CHECK(error_of(e)["code"] == "invalid_request");
  }
  CHECK(
      rig.chat(R"(,"temperature":null,"stop":null,"tools":[],"n":1,"user":"a")")->response.status ==
      200);
}

TEST_CASE("messages are checked one by one") {
  Rig rig;
  const auto send = [&](const char* messages) {
    return rig.send("POST", "/v1/chat/completions",
                    std::string(R"({"messages":)") + messages + "}");
  };
  CHECK(error_of(send("[]"))["param"] == "messages");
  CHECK(error_of(send("7"))["param"] == "messages");
  CHECK(error_of(send(R"([{"role":"user","content":"a"},{"content":"b"}])"))["param"] ==
        "messages[1]");
  CHECK(error_of(send(R"([{"role":"user","content":[{"type":"image_url"}]}])"))["param"] ==
        "messages[0]");
  CHECK(send(R"([{"role":"user","content":[{"type":"text","text":"a"}]}])")->response.status ==
        200);
}

TEST_CASE("bad JSON names the position; paths and methods are told apart") {
  Rig rig;
  const auto bad = rig.send("POST", "/v1/chat/completions", "{\"messages\": [}");
  CHECK(bad->response.status == 400);
  CHECK(error_of(bad)["message"].get<std::string>().find("byte 15") != std::string::npos);
  CHECK(rig.send("GET", "/nope")->response.status == 404);
  const auto wrong = rig.send("GET", "/v1/chat/completions");
  CHECK(wrong->response.status == 405);
  CHECK(wrong->response.headers.back().second == "POST");
  const auto unknown = rig.chat(R"(,"model":"gpt-4")");
  CHECK(unknown->response.status == 404);
  CHECK(error_of(unknown)["code"] == "model_not_found");
  CHECK(error_of(rig.send("GET", "/v1/models/gpt-4"))["code"] == "model_not_found");
  CHECK(rig.send("GET", "/v1/models/default")->response.status == 200);
}

TEST_CASE("a prompt longer than the context is refused with both numbers") {
  Rig rig;
  const auto e =
      rig.send("POST", "/v1/completions", R"({"prompt":")" + std::string(300, 'a') + R"("})");
  CHECK(e->response.status == 400);
  CHECK(error_of(e)["code"] == "context_length_exceeded");
  CHECK(error_of(e)["n_prompt_tokens"] == 301);
  CHECK(error_of(e)["n_ctx"] == 200);
}

TEST_CASE("completions take text or ids") {
  Rig rig;
  auto e = rig.send("POST", "/v1/completions", R"({"prompt":[5,6,7],"max_tokens":3})");
  CHECK(e->response.status == 200);
  CHECK(rig.service.last.prompt == std::vector<int32_t>{5, 6, 7});
  CHECK(Json::parse(e->response.body)["choices"][0]["text"] == "Hi there");
  e = rig.send("POST", "/v1/completions", R"({"prompt":"ab","echo":true})");
  CHECK(Json::parse(e->response.body)["choices"][0]["text"] == "abHi there");
  CHECK(rig.service.last.max_tokens == 16);
  CHECK(error_of(rig.send("POST", "/v1/completions", R"({"prompt":[5,9999]})"))["param"] ==
        "prompt");
  CHECK(error_of(rig.send("POST", "/v1/completions", R"({"prompt":[]})"))["param"] == "prompt");
  CHECK(error_of(rig.send("POST", "/v1/completions", "{}"))["param"] == "prompt");
}

TEST_CASE("loading, full and lost are 503 with Retry-After before the first byte, events after") {
  Rig rig;
  rig.service.status.state = engine::ModelState::loading;
  auto e = rig.chat("");
  CHECK(e->response.status == 503);
  CHECK(error_of(e)["code"] == "model_loading");
  CHECK(e->response.headers.back().first == "Retry-After");
  CHECK(rig.send("GET", "/ready")->response.status == 503);
  CHECK(rig.send("GET", "/health")->response.status == 200);
  rig.service.status.state = engine::ModelState::ready;
  CHECK(rig.send("GET", "/ready")->response.status == 200);

  rig.service.refuse = Error{Code::busy, "the queue is full", "capacity_busy"};
  e = rig.chat("");
  CHECK(e->response.status == 503);
  CHECK(error_of(e)["code"] == "capacity_busy");
  rig.service.refuse.reset();

  rig.service.reason = engine::Finish::error;
  rig.service.error = Error{Code::device_lost, "the die is gone", ""};
  e = rig.chat("");
  CHECK(e->response.status == 503);
  CHECK(error_of(e)["code"] == "device_lost");
  e = rig.chat(R"(,"stream":true)");
  CHECK(e->finished);
  CHECK(events(e->stream).back()["error"]["code"] == "device_lost");
  CHECK(e->stream.find("[DONE]") == std::string::npos);
}

TEST_CASE("a client that leaves cancels its generation") {
  Rig rig;
  rig.service.hold = true;
  const auto e = rig.chat(R"(,"stream":true)");
  REQUIRE(e->gone);
  CHECK(rig.service.cancelled == 0);
  e->gone();
  CHECK(rig.service.cancelled == 7);
}

TEST_CASE("logprobs carry bytes and alternatives") {
  Rig rig;
  const auto e = rig.chat(R"(,"logprobs":true,"top_logprobs":2)");
  const Json content = Json::parse(e->response.body)["choices"][0]["logprobs"]["content"];
  REQUIRE(content.size() == 1);
  CHECK(content[0]["token"] == "Hi");
  CHECK(content[0]["bytes"] == Json::array({72, 105}));
  CHECK(content[0]["top_logprobs"].size() == 2);
}
