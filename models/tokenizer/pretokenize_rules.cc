// SPDX-License-Identifier: Apache-2.0
//
// One function for each published alternative, put together in their order: the first alternative
// that matches wins, whatever the length, as in a regular expression.
#include "models/tokenizer/pretokenize_rules.h"

namespace pn::tok {
namespace {

// The longest run of what `in` accepts, at most `limit` long.
template <typename In>
size_t run(const Chars& c, size_t at, In in, size_t limit = SIZE_MAX) {
  size_t to = at;
  while (to < c.end && to - at < limit && in(to)) to++;
  return to;
}

char32_t fold(char32_t point, bool any_case) {
  return any_case && point >= 'A' && point <= 'Z' ? point + 32 : point;
}

// 's 't 're 've 'm 'll 'd
size_t contraction(const Chars& c, size_t at, bool any_case) {
  if (c.point(at) != '\'') return at;
  char32_t first = fold(c.point(at + 1), any_case);
  char32_t second = fold(c.point(at + 2), any_case);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
             (first == 'l' && second == 'l');
  return two ? at + 3 : at;
}

// s+(?!\S) | s+: leaves the last space to the word behind it.
size_t white_space(const Chars& c, size_t at) {
  size_t to = run(c, at, [&](size_t i) { return c.space(i); });
  return to < c.end && to - at > 1 ? to - 1 : to;
}

// s*[\r\n]+ | s+(?!\S) | s+: up to the last line end of the run, if there is one.
size_t lines(const Chars& c, size_t at) {
  size_t to = run(c, at, [&](size_t i) { return c.space(i); });
  for (size_t i = to; i > at; i--) {
    if (c.line_end(i - 1)) return i;
  }
  return white_space(c, at);
}

// One optional space, then at least one of what `in` accepts; else at.
template <typename In>
size_t spaced_run(const Chars& c, size_t at, In in) {
  size_t from = c.point(at) == ' ' ? at + 1 : at;
  size_t to = run(c, from, in);
  return to > from ? to : at;
}

// ?[^sLN]+ and then any of [\r\n] (and '/').
size_t symbols(const Chars& c, size_t at, bool slash, bool marks_are_letters) {
  size_t to = spaced_run(c, at, [&](size_t i) {
    return !c.space(i) && !c.letter(i) && !c.number(i) && !(marks_are_letters && c.mark(i));
  });
  if (to == at) return at;
  return run(c, to, [&](size_t i) { return c.line_end(i) || (slash && c.point(i) == '/'); });
}

bool may_lead(const Chars& c, size_t at) {
  return at < c.end && !c.line_end(at) && !c.letter(at) && !c.number(at);
}

// [^\r\nLN]?L+
size_t led_word(const Chars& c, size_t at, bool marks_are_letters) {
  auto in = [&](size_t i) { return c.letter(i) || (marks_are_letters && c.mark(i)); };
  size_t from = may_lead(c, at) ? at + 1 : at;
  size_t to = run(c, from, in);
  if (to > from) return to;
  return run(c, at, in);  // a mark that leads nothing is a word
}

size_t llama_family(const Chars& c, size_t at, size_t max_digits, bool marks_are_letters) {
  if (size_t to = contraction(c, at, true); to > at) return to;
  if (size_t to = led_word(c, at, marks_are_letters); to > at) return to;
  if (size_t to = run(
          c, at, [&](size_t i) { return c.number(i); }, max_digits);
      to > at)
    return to;
  if (size_t to = symbols(c, at, false, marks_are_letters); to > at) return to;
  return lines(c, at);
}

bool upper_like(const Chars& c, size_t at) {
  CharClass k = c.cls(at);
  return k == CharClass::upper || k == CharClass::letter || k == CharClass::mark;
}

bool lower_like(const Chars& c, size_t at) {
  CharClass k = c.cls(at);
  return k == CharClass::lower || k == CharClass::letter || k == CharClass::mark;
}

// upper* lower+, as a backtracking matcher finds it: the upper run gives back just enough for one
// lower; what it gives back is followed by an upper, so the match ends there.
size_t upper_lower(const Chars& c, size_t at) {
  size_t to = run(c, at, [&](size_t i) { return upper_like(c, i); });
  if (lower_like(c, to)) return run(c, to, [&](size_t i) { return lower_like(c, i); });
  while (to > at && !lower_like(c, to - 1)) to--;
  return to;
}

// upper+ lower*
size_t uppers(const Chars& c, size_t at) {
  size_t to = run(c, at, [&](size_t i) { return upper_like(c, i); });
  return to == at ? at : run(c, to, [&](size_t i) { return lower_like(c, i); });
}

size_t cased_word(const Chars& c, size_t at) {
  bool lead = may_lead(c, at);
  if (lead) {
    if (size_t to = upper_lower(c, at + 1); to > at + 1) return to;
  }
  if (size_t to = upper_lower(c, at); to > at) return to;
  if (lead) {
    if (size_t to = uppers(c, at + 1); to > at + 1) return to;
  }
  return uppers(c, at);
}

size_t tekken_family(const Chars& c, size_t at, size_t max_digits, bool contractions) {
  if (size_t to = cased_word(c, at); to > at) return contractions ? contraction(c, to, true) : to;
  if (size_t to = run(
          c, at, [&](size_t i) { return c.number(i); }, max_digits);
      to > at)
    return to;
  if (size_t to = symbols(c, at, true, false); to > at) return to;
  return lines(c, at);
}

bool punct_like(const Chars& c, size_t at) {
  if (c.cls(at) == CharClass::punct) return true;
  switch (c.point(at)) {
    case '$':
    case '+':
    case '<':
    case '=':
    case '>':
    case '^':
    case '~':
    case '|':
      return true;
    default:
      return false;
  }
}

}  // namespace

size_t rule_gpt2(const Chars& c, size_t at) {
  if (size_t to = contraction(c, at, false); to > at) return to;
  if (size_t to = spaced_run(c, at, [&](size_t i) { return c.letter(i); }); to > at) return to;
  if (size_t to = spaced_run(c, at, [&](size_t i) { return c.number(i); }); to > at) return to;
  auto rest = [&](size_t i) { return !c.space(i) && !c.letter(i) && !c.number(i); };
  if (size_t to = spaced_run(c, at, rest); to > at) return to;
  return white_space(c, at);
}

size_t rule_llama3(const Chars& c, size_t at) { return llama_family(c, at, 3, false); }
size_t rule_qwen2(const Chars& c, size_t at) { return llama_family(c, at, 1, false); }
size_t rule_minicpm5(const Chars& c, size_t at) { return llama_family(c, at, SIZE_MAX, false); }
size_t rule_qwen35(const Chars& c, size_t at) { return llama_family(c, at, 1, true); }
size_t rule_tekken(const Chars& c, size_t at) { return tekken_family(c, at, 1, false); }
size_t rule_gpt4o(const Chars& c, size_t at) { return tekken_family(c, at, 3, true); }

size_t rule_digit(const Chars& c, size_t at) { return c.number(at) ? at + 1 : at; }

size_t rule_digits3(const Chars& c, size_t at) {
  return run(
      c, at, [&](size_t i) { return c.number(i); }, 3);
}

size_t rule_digits(const Chars& c, size_t at) {
  return run(c, at, [&](size_t i) { return c.number(i); });
}

size_t rule_ascii_digits3(const Chars& c, size_t at) {
  size_t to = run(
      c, at, [&](size_t i) { return c.point(i) >= '0' && c.point(i) <= '9'; }, 3);
  return to - at == 3 ? to : at;
}

size_t rule_punct(const Chars& c, size_t at) {
  return run(c, at, [&](size_t i) { return punct_like(c, i); });
}

size_t rule_punct_backtick(const Chars& c, size_t at) {
  return run(c, at, [&](size_t i) { return punct_like(c, i) || c.point(i) == '`'; });
}

}  // namespace pn::tok
