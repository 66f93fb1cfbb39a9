/** A command line split into words as a shell does, without expansion. */
export interface ShellWords {
  readonly words: readonly string[];
  /** True if the line needs a shell: a pipe, a list, a redirection or a substitution. */
  readonly needsShell: boolean;
}

const BLANK = /[ \t\r\n]/;
const OPERATOR = /[|&;<>()`$\n]/;
/** Characters that a backslash escapes inside double quotes. */
const ESCAPABLE = '$`"\\\n';

/** Splits a line into words, honouring quotes and backslashes (POSIX.1-2024, XCU 2.2). Undefined if a quote is not closed. */
export function shellWords(text: string): ShellWords | undefined {
  // Leading and trailing white space is ignored; a newline between words makes a list.
  const line = text.replace(/^[ \t\r\n]+/, "").replace(/(?<!\\)\n+$/, "");
  const words: string[] = [];
  let word: string | undefined;
  let needsShell = false;
  for (let at = 0; at < line.length; at++) {
    const char = line.charAt(at);
    if (char === "'" || char === '"') {
      const quoted = char === "'" ? singleQuoted(line, at) : doubleQuoted(line, at);
      if (quoted === undefined) return undefined;
      word = (word ?? "") + quoted.text;
      needsShell ||= quoted.needsShell;
      at = quoted.end;
    } else if (char === "\\") {
      at++;
      if (at >= line.length) return undefined;
      if (line.charAt(at) !== "\n") word = (word ?? "") + line.charAt(at);
    } else {
      needsShell ||= OPERATOR.test(char);
      if (!BLANK.test(char)) word = (word ?? "") + char;
      else if (word !== undefined) {
        words.push(word);
        word = undefined;
      }
    }
  }
  if (word !== undefined) words.push(word);
  return { words, needsShell };
}

interface Quoted {
  readonly text: string;
  /** Returns the index of the closing quote. */
  readonly end: number;
  readonly needsShell: boolean;
}

function singleQuoted(line: string, start: number): Quoted | undefined {
  const end = line.indexOf("'", start + 1);
  return end === -1 ? undefined : { text: line.slice(start + 1, end), end, needsShell: false };
}

function doubleQuoted(line: string, start: number): Quoted | undefined {
  let text = "";
  let needsShell = false;
  for (let at = start + 1; at < line.length; at++) {
    const char = line.charAt(at);
    if (char === '"') return { text, end: at, needsShell };
    if (char === "\\" && at + 1 < line.length && ESCAPABLE.includes(line.charAt(at + 1))) {
      at++;
      if (line.charAt(at) !== "\n") text += line.charAt(at);
    } else {
      needsShell ||= char === "$" || char === "`";
      text += char;
    }
  }
  return undefined;
}
