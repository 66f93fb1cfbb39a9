/** A line of prose in a file: a line of a comment, a string, or a line of a document. Lines count from 1. */
export interface Prose {
  readonly line: number;
  readonly text: string;
  /** Whether a doc comment begins here. */
  readonly startsDocComment: boolean;
}

/** Returns the prose of a file; none for a kind of file that is not known. */
export function proseOf(path: string, text: string): readonly Prose[] {
  if (path.endsWith(".md")) return documentProse(text);
  if (/\.(?:ts|mts|js|mjs)$/.test(path)) return codeProse(text);
  if (/\.(?:sh|service|slice|conf)$/.test(path) || text.startsWith("#!")) return scriptProse(text);
  return [];
}

function documentProse(text: string): readonly Prose[] {
  let isCode = false;
  return text.split("\n").flatMap((line, index) => {
    if (/^\s*(?:```|~~~)/.test(line)) {
      isCode = !isCode;
      return [];
    }
    const shown = isCode ? (/(?:^|\s)#\s(.*)$/.exec(line)?.[1] ?? "") : line;
    return shown.trim() === "" ? [] : [{ line: index + 1, text: shown, startsDocComment: false }];
  });
}

/** In shell scripts and units: comments, and what stands between double quotes. */
function scriptProse(text: string): readonly Prose[] {
  return text.split("\n").flatMap((line, index) => {
    const comment = /(?:^|\s)#\s(.*)$/.exec(line)?.[1];
    const strings = [...line.matchAll(/"([^"]*\s[^"]*)"/g)].map(([, string]) => string ?? "");
    return (comment === undefined ? strings : [comment]).map((text) => ({
      line: index + 1,
      text,
      startsDocComment: false,
    }));
  });
}

/** Comments, strings and templates of TypeScript; regular expressions are the third alternative, so that their quotes open nothing. */
const TOKEN =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\[\s\S])*`|(?<=[=(,:!&|?{};[]\s*)\/(?![*/])(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//g;

function codeProse(text: string): readonly Prose[] {
  const found: Prose[] = [];
  let line = 1;
  let at = 0;
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    line += lineBreaksIn(text.slice(at, index));
    at = index;
    if (token.startsWith("/*") || token.startsWith("//")) found.push(...commentProse(token, line));
    else if (!token.startsWith("/")) {
      const lines = token.slice(1, -1).replaceAll("`", "'").split("\n");
      for (const [offset, part] of lines.entries())
        if (/\w\s+\w/.test(part)) found.push({ line: line + offset, text: part, startsDocComment: false });
    }
  }
  return found;
}

function commentProse(token: string, line: number): readonly Prose[] {
  const isDoc = token.startsWith("/**");
  const lines = token.split("\n").map((part) =>
    part
      .replace(/^\s*(?:\/\*\*?|\/\/|\*\/|\*(?!\/))\s?/, "")
      .replace(/\s*\*\/$/, "")
      .trim(),
  );
  const first = lines.findIndex((part) => part !== "");
  return lines.flatMap((part, offset) =>
    part === "" ? [] : [{ line: line + offset, text: part, startsDocComment: isDoc && offset === first }],
  );
}

const lineBreaksIn = (text: string): number => text.split("\n").length - 1;
