/** A word that the project does not use, and the one that it uses instead. */
export interface Rule {
  readonly pattern: RegExp;
  readonly write: string;
}

/** A place in a text where another word belongs. */
export interface Finding {
  readonly found: string;
  readonly write: string;
}

const rule = (pattern: string, write: string): Rule => ({ pattern: new RegExp(`\\b(?:${pattern})`, "gi"), write });

/** Words for which the glossary has another one. Each pattern also matches the inflected forms. */
export const GLOSSARY: readonly Rule[] = [
  rule("(?:put|puts|putting|is|are|be|comes?|stays?|was|were) (?:\\w+ ){0,3}in(?:to)? force\\b", "apply, applied"),
  rule("(?:carry|carries|carried|carrying) (?:\\w+ ){0,2}out\\b", "apply, run"),
  rule(
    "(?:take|takes|took|taken|taking|bring|brings|brought|bringing|put|puts) (?:\\w+ ){0,2}back\\b",
    "roll back, revert, cancel",
  ),
  rule("(?:wait|waits|waiting) (?:for|to) be(?:ing)? kept|being kept\\b", "pending, to confirm"),
  rule("(?:tell|tells|told|telling|say|says|said|saying)\\b", "event, report, notify, log"),
  rule(
    "(?:look|looks|looked|looking)(?: (?:again|at|into|whether|for))?\\b(?! (?:like|up))",
    "refresh, poll, re-evaluate, read",
  ),
  rule("more and more seldom\\b", "with exponential backoff"),
  rule("for ever\\b", "indefinitely, until ..."),
  rule("at one blow\\b|whole or not at all\\b", "atomically"),
  rule("(?:come|comes|came|coming) (?:about|to be)\\b", "happens, occurs"),
  rule("(?:turn|turns|turned|turning) away\\b", "rejected, refused, dropped"),
  rule("(?:leave|leaves|left|leaving) (?:\\w+ ){0,2}out\\b", "reject, ignore, skip"),
  rule("(?:is|are|was|were|be|been) (?:away|gone)\\b", "disconnected, offline, removed"),
  rule("(?:is|are|was|were|be|been) (?:not )?there(?=[.,;:)]| (?:again|already|yet))", "connected, online, exists"),
  rule("(?:nobody|no one|anybody|somebody) (?:is|can be) reached\\b|where nobody\\b", "unreachable"),
  rule("time is over\\b|time is up\\b", "timed out"),
  rule("without a byte\\b", "closed before sending data"),
  rule("allowances?\\b|may be taken\\b", "limit, quota, budget"),
  rule("gates?\\b(?! ?way)", "rate limiter"),
  rule("doors?\\b", "admission control"),
  rule("unread\\b", "receive buffer"),
  rule("(?:one|each|other|both|either|this|that) hal(?:f|ves)\\b(?! of)", "one-way copy, pipe"),
  rule("keepers?\\b", "supervisor"),
  rule("(?:the|a|one) before\\b", "baseline, previous"),
  rule("ways (?!of)|(?:a|the|no|another|its|every|each) ways? (?:to|through|back|there)\\b", "path, route"),
  rule("whom\\b", "owner of"),
  rule("(?:can|cannot|could|may) (?:not )?be had\\b", "unsupported, not implemented"),
  rule("(?:with|has|have|had|without) the right to\\b", "as root, with CAP_NET_ADMIN"),
  rule("(?<=[,;(] )where (?:it|they|there|that|this|nobody|nothing|one)\\b", "if, when"),
];

const RIDDLE = /^(?:What|Who|Whom|Whoever|Whatever|Whichever|Whose|Of|Where|Wherever|How)\b(?! (?:many|much|long)\b)/;
const RIDDLE_RULE = "start with what the thing is or does";

/** Returns the places of `text` where the glossary has another word. Code between backticks is skipped. */
export function wordsOf(text: string): readonly Finding[] {
  const prose = text.replace(/`[^`]*`/g, "``").replace(/\]\([^)]*\)/g, "]");
  return GLOSSARY.flatMap(({ pattern, write }) =>
    [...prose.matchAll(pattern)].map(([found]) => ({ found: found.trim(), write })),
  );
}

/** Returns the first word of a doc comment that names its subject by a question. */
export function riddleOf(comment: string): Finding | undefined {
  const found = RIDDLE.exec(comment)?.[0];
  return found === undefined ? undefined : { found: `/** ${found}`, write: RIDDLE_RULE };
}
