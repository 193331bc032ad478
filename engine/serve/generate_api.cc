// SPDX-License-Identifier: Apache-2.0
//
// The two generating endpoints: request -> prompt ids -> generation -> answer; see api.h.
//
// One listener turns the engine's deltas into a whole body or a stream. It runs on the scheduler's
// thread, so it only formats and posts.
#include <fmt/format.h>

#include <chrono>
#include <mutex>

#include "engine/serve/answers.h"
#include "engine/serve/api.h"
#include "engine/service/prompt.h"

namespace pn::serve {

namespace {

struct AnswerPlan {
  AnswerHead head;
  bool stream = false;
  bool logprobs = false;
  std::string echo;  // text that comes before the answer
};

class AnswerListener final : public engine::Listener {
 public:
  AnswerListener(AnswerPlan plan, std::shared_ptr<Exchange> exchange)
      : plan_(std::move(plan)), exchange_(std::move(exchange)), text_(plan_.echo) {}

  void delta(engine::Delta&& part) override {
    if (!plan_.stream) {
      text_ += part.text;
      if (plan_.logprobs)
        tokens_.insert(tokens_.end(), std::make_move_iterator(part.tokens.begin()),
                       std::make_move_iterator(part.tokens.end()));
      return;
    }
    open();
    if (part.text.empty() && !(plan_.logprobs && !part.tokens.empty())) return;
    exchange_->write(delta_event(plan_.head, part, plan_.logprobs));
  }

  void finished(const engine::Finished& end) override {
    const bool failed =
        end.reason == engine::Finish::error || end.reason == engine::Finish::cancelled;
    if (failed) return fail_answer(end);
    if (!plan_.stream) {
      HttpResponse response;
      response.body = whole_answer(plan_.head, text_, tokens_, plan_.logprobs, end)
                          .dump(-1, ' ', false, Json::error_handler_t::replace);
      return exchange_->respond(std::move(response));
    }
    open();
    exchange_->write(closing_events(plan_.head, end));
    exchange_->finish_stream();
  }

 private:
  // Headers go out with the first delta: until then a failure can still be a proper status.
  void open() {
    if (opened_) return;
    opened_ = true;
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    exchange_->start_stream(std::move(head));
    std::string first = opening_event(plan_.head);
    if (!plan_.echo.empty()) first += delta_event(plan_.head, {plan_.echo, {}}, false);
    exchange_->write(std::move(first));
  }

  void fail_answer(const engine::Finished& end) {
    const Error error = end.error.value_or(
        Error{Code::cancelled, "the generation was cancelled because the server is stopping", ""});
    const ApiError out = to_api_error(error);
    if (!opened_) return exchange_->respond(error_response(out));
    exchange_->write(error_event(out));
    exchange_->finish_stream();
  }

  AnswerPlan plan_;
  std::shared_ptr<Exchange> exchange_;
  std::string text_;
  std::vector<engine::TokenInfo> tokens_;
  bool opened_ = false;
};

int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Error too_long(size_t prompt, uint32_t context, const char* param) {
  return {
      Code::invalid,
      fmt::format("the prompt has {} tokens and this model's context holds {}: shorten the prompt, "
                  "or serve the model with a larger context",
                  prompt, context),
      param};
}

}  // namespace

Result<engine::ModelStatus> Api::ready_model(const std::string& name) const {
  const auto found = service_.model(name);
  if (!found) {
    const ApiError e = unknown_model(service_, name);
    return fail(Code::not_found, e.message, "model");
  }
  if (found->state == engine::ModelState::loading)
    return fail(Code::busy,
                fmt::format("{} is loading: {} of {} bytes; try again shortly", found->name,
                            found->bytes_done, found->bytes_total),
                "model_loading");
  if (found->lost) return fail(Code::device_lost, found->error);
  if (found->state == engine::ModelState::failed)
    return fail(Code::failed, fmt::format("{} could not be loaded: {}", found->name, found->error),
                "model_failed");
  return *found;
}

void Api::chat(const HttpRequest& http, const std::shared_ptr<Exchange>& exchange) {
  auto body = parse_json(http.body);
  if (!body) return refuse(body.error(), exchange);
  auto model = ready_model(model_name(*body));
  if (!model) return refuse(model.error(), exchange);
  auto request = read_chat(*body, model->sampling);
  if (!request) return refuse(request.error(), exchange);
  const tok::Tokenizer* tokenizer = service_.tokenizer(model->name);
  const chat::Template* format = service_.chat_template(model->name);
  if (!format)
    return refuse({Code::unsupported,
                   fmt::format("the chat template of {} cannot be used: {}; /v1/completions works",
                               model->name, model->chat_error),
                   "messages"},
                  exchange);
  if (request->enable_thinking.value_or(false) && !format->caps().thinking)
    return refuse({Code::unsupported,
                   fmt::format("enable_thinking is true, but the chat template of {} reads no such "
                               "variable: leave it out",
                               model->name),
                   "enable_thinking"},
                  exchange);
  engine::ChatPrompt prompt{request->messages, request->enable_thinking, request->template_extra};
  auto ids = engine::chat_prompt(*format, *tokenizer, prompt);
  if (!ids) {
    ApiError error = to_api_error(ids.error());
    if (error.status == 400) error.code = "invalid_messages";
    return exchange->respond(error_response(error));
  }
  request->generate.prompt = std::move(*ids);
  generate(*model, *request, true, "", exchange);
}

void Api::completions(const HttpRequest& http, const std::shared_ptr<Exchange>& exchange) {
  auto body = parse_json(http.body);
  if (!body) return refuse(body.error(), exchange);
  auto model = ready_model(model_name(*body));
  if (!model) return refuse(model.error(), exchange);
  auto request = read_completion(*body, model->sampling);
  if (!request) return refuse(request.error(), exchange);
  const tok::Tokenizer* tokenizer = service_.tokenizer(model->name);
  if (request->text) {
    // Raw text is its author's business, so special tokens in it count.
    request->generate.prompt = tokenizer->encode(*request->text, true, true);
    if (request->generate.prompt.empty())
      return refuse({Code::invalid, "the prompt is empty: give text or token ids", "prompt"},
                    exchange);
  } else {
    for (const int32_t id : request->ids)
      if (id >= tokenizer->size())
        return refuse({Code::invalid,
                       fmt::format("prompt holds the id {}, and this vocabulary ends at {}", id,
                                   tokenizer->size() - 1),
                       "prompt"},
                      exchange);
    request->generate.prompt = request->ids;
  }
  const std::string echo =
      !request->echo ? ""
                     : request->text.value_or(tokenizer->decode(request->generate.prompt, true));
  generate(*model, *request, false, echo, exchange);
}

void Api::generate(const engine::ModelStatus& model, Common request, bool chat, std::string echo,
                   const std::shared_ptr<Exchange>& exchange) {
  const size_t prompt = request.generate.prompt.size();
  if (prompt >= model.context) {
    const Error error = too_long(prompt, model.context, "context_length_exceeded");
    ApiError out = to_api_error(error);
    out.param = chat ? "messages" : "prompt";
    out.extra = {{"n_prompt_tokens", prompt}, {"n_ctx", model.context}};
    return exchange->respond(error_response(out));
  }
  AnswerPlan plan;
  plan.stream = request.stream;
  plan.logprobs = request.generate.logprobs;
  plan.echo = std::move(echo);
  plan.head.kind = chat ? AnswerKind::chat : AnswerKind::text;
  plan.head.id = next_id(chat ? "chatcmpl" : "cmpl");
  plan.head.model = model.name;
  plan.head.created_s = now_s();
  plan.head.fingerprint = fmt::format("pantheon-{}-{}", PN_VERSION, model.plugin);
  plan.head.include_usage = request.include_usage;
  plan.head.token_bytes = [tokenizer = service_.tokenizer(model.name)](int32_t id) {
    return tokenizer->piece(id, true);
  };
  auto listener = std::make_shared<AnswerListener>(std::move(plan), exchange);
  auto started = service_.start(model.name, std::move(request.generate), std::move(listener));
  if (!started) return refuse(started.error(), exchange);
  exchange->on_gone([this, id = *started] { service_.cancel(id); });
}

}  // namespace pn::serve
