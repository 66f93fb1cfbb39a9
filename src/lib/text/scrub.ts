/** Minimum length of a known secret, in characters; shorter ones match ordinary text. */
const MIN_LENGTH = 6;
const MIN_PIECE = 8;

/** Removes known secrets, in every encoding, and text that looks like a secret. */
export type Scrub = (text: string) => string;

/** Returns a scrubber for `secrets`, the values found on this machine. Pure. */
export function scrubber(secrets: readonly string[], mark: string): Scrub {
  const lines = secrets.flatMap((secret) => [secret, ...secret.split(/\r?\n/)]);
  const words = secrets.flatMap((secret) => secret.split(/[\s:="'@,;]+/)).filter(isNoWord);
  const values = [...new Set([...lines, ...words])].filter((secret) => secret.length >= MIN_LENGTH);
  const forms = [...new Set(values.flatMap(formsOf))].sort((a, b) => b.length - a.length);
  return (text) => {
    let clean = text;
    for (const form of forms) if (clean.includes(form)) clean = clean.replaceAll(form, mark);
    for (const { pattern, by } of SHAPES) clean = clean.replaceAll(pattern, by(mark));
    return clean;
  };
}

/** Reports whether a word of a command line may be a password: it is no name, path or option. */
const isNoWord = (word: string): boolean => word.length >= MIN_PIECE && !/^[a-z./_-]*$/.test(word);

/** Returns the encodings of a secret: plain, JSON, percent-encoded, hexadecimal, and base64 at each of the three alignments. */
function formsOf(value: string): readonly string[] {
  const bytes = Buffer.from(value);
  const hex = bytes.toString("hex");
  const base64 = [0, 1, 2].flatMap((shift) => {
    const text = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
    // The first and last base64 characters share bits with neighbouring bytes, so they are cut off.
    const piece = text.slice(Math.ceil((shift * 8) / 6), Math.floor(((shift + bytes.length) * 8) / 6));
    return [piece, piece.replaceAll("+", "-").replaceAll("/", "_")].filter((form) => form.length >= MIN_PIECE);
  });
  const inJson = JSON.stringify(value).slice(1, -1);
  return [
    value,
    inJson,
    JSON.stringify(inJson).slice(1, -1),
    encodeURIComponent(value),
    hex,
    hex.toUpperCase(),
    ...base64,
  ];
}

/** Patterns that look like secrets: signed tokens, private keys, passwords in URLs and after their names. */
const SHAPES: readonly { readonly pattern: RegExp; readonly by: (mark: string) => string }[] = [
  { pattern: /\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)*/g, by: (mark) => mark },
  {
    pattern: /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g,
    by: (mark) => mark,
  },
  { pattern: /(\b[a-z][a-z0-9+.-]{1,20}:\/\/)[^\s/@"'<>]{1,512}@/gi, by: (mark) => `$1${mark}@` },
  { pattern: /\b((?:Bearer|Basic)\s+)[\w.~+/=-]{6,}/gi, by: (mark) => `$1${mark}` },
  // The quotes stay so that a line of JSON remains valid.
  { pattern: named(String.raw`"(?:[^"\\\n]|\\.)*"`), by: (mark) => `$1"${mark}"` },
  { pattern: named(String.raw`\\"(?:(?!\\").)*\\"`), by: (mark) => `$1\\"${mark}\\"` },
  { pattern: named(String.raw`[^\s,;&"'}\]\\\[]+`), by: (mark) => `$1${mark}` },
];

/** Matches a value that follows the name of a secret. */
function named(value: string): RegExp {
  const names =
    "password|passwd|passphrase|secret|token|ticket|licen[cs]e|api[_-]?key|(?:secret[_-]?)?access[_-]?key(?:[_-]?id)?|private[_-]?key|preshared[_-]?key|psk|authorization";
  return new RegExp(String.raw`((?:${names})(?:\\?["'])?\s*[=:]\s*)(?:${value})`, "gi");
}
