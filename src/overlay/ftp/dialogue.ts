import { announcedPort, passiveCode, type Passive } from "./passive.ts";

export interface DialogueUser {
  /** The server announced a data port. Returns the reply to send instead, without a line end; undefined refuses the transfer. */
  announced(passive: Passive, port: number, line: string): string | undefined;
  /** Called when the stream is not FTP; nothing more passes. */
  failed(): void;
}

/** Maximum length of a line; paths have at most 4,096 bytes (PATH_MAX). */
const MAX_LINE_BYTES = 8192;
/** Maximum number of commands without a reply; beyond it the oldest counts as answered. */
const MAX_PENDING = 256;

/** Commands that cannot be carried: active mode, long addresses (RFC 1639), and TLS, which would hide the replies. */
const REFUSED: ReadonlySet<string> = new Set(["PORT", "EPRT", "LPRT", "LPSV", "SPSV", "AUTH"]);
const REFUSAL = "502 Not available through this connector: passive mode without TLS only.\r\n";
const CANNOT_OPEN = "425 Cannot open a data connection.\r\n";
/** Replaces a refused command, so that its reply arrives in order. */
const SUBSTITUTE = "NOOP\r\n";
/** First byte of a TLS connection (RFC 8446 §5.1). */
const TLS_HANDSHAKE = 0x16;

type Command = Passive | "refused" | "other";

interface Reply {
  readonly code: string;
  /** Command that the reply answers; decides whether the client sees its lines. */
  readonly answers: Command | undefined;
}

/**
 * Rewrites an FTP control connection (RFC 959) in both directions: replaces announced data ports and answers
 * unsupported commands with 502. Passes everything else unchanged, line by line.
 */
export class Dialogue {
  readonly #user: DialogueUser;
  readonly #requests = new Lines(MAX_LINE_BYTES);
  readonly #replies = new Lines(MAX_LINE_BYTES);
  #pending: Command[] = [];
  #reply: Reply | undefined;
  #isGreeted = false;
  #hasBegun = false;
  #hasFailed = false;

  constructor(user: DialogueUser) {
    this.#user = user;
  }

  request(chunk: Uint8Array): Uint8Array {
    const isTls = !this.#hasBegun && chunk[0] === TLS_HANDSHAKE;
    this.#hasBegun ||= chunk.length > 0;
    return this.#pass(isTls ? undefined : this.#requests.take(chunk), (line) => this.#command(line));
  }

  reply(chunk: Uint8Array): Uint8Array {
    return this.#pass(this.#replies.take(chunk), (line) => this.#replyLine(line));
  }

  #pass(lines: readonly string[] | undefined, edit: (line: string) => string): Uint8Array {
    if (this.#hasFailed) return Buffer.alloc(0);
    if (lines === undefined) {
      this.#hasFailed = true;
      this.#user.failed();
      return Buffer.alloc(0);
    }
    return Buffer.from(lines.map(edit).join(""), "latin1");
  }

  #command(line: string): string {
    // Telnet control bytes may precede a command (RFC 959 §4.1.3, ABOR).
    const words = line.replace(/[^\x20-\x7e]/g, "").toUpperCase();
    const [, verb = "", argument = ""] = /^[^A-Z]*([A-Z]+)(?: +(\S+))?/.exec(words) ?? [];
    if (verb === "") return line;
    const command = commandOf(verb, argument);
    this.#pending.push(command);
    if (this.#pending.length > MAX_PENDING) this.#pending.shift();
    return command === "refused" ? SUBSTITUTE : line;
  }

  #replyLine(line: string): string {
    const [, code, more] = /^(\d{3})([ -]?)/.exec(line) ?? [];
    if (this.#reply !== undefined) {
      const isLast = code === this.#reply.code && more !== "-";
      return isLast ? this.#finish(this.#reply, line) : intermediate(this.#reply, line);
    }
    // A line without a code is not a reply.
    if (code === undefined) return line;
    const reply = { code, answers: this.#answers(code) };
    if (more !== "-") return this.#finish(reply, line);
    this.#reply = reply;
    return intermediate(reply, line);
  }

  /** Returns the command that a reply answers. Preliminary replies and the greeting answer none. */
  #answers(code: string): Command | undefined {
    if (code.startsWith("1") || !this.#isGreeted) return undefined;
    const passive = code === passiveCode.PASV ? "PASV" : code === passiveCode.EPSV ? "EPSV" : undefined;
    if (passive !== undefined) return this.#pending.includes(passive) ? passive : undefined;
    const [next] = this.#pending;
    // Only 227 and 229 grant these; any other success answers another command.
    const isGranted = /^[23]/.test(code) && (next === "PASV" || next === "EPSV");
    return isGranted ? undefined : next;
  }

  #finish({ code, answers }: Reply, line: string): string {
    this.#reply = undefined;
    if (!code.startsWith("1")) this.#isGreeted = true;
    if (answers === undefined) return line;
    // A reply that fits one command only implies that the commands before it were answered.
    this.#pending = this.#pending.slice(this.#pending.indexOf(answers) + 1);
    if (answers === "refused") return REFUSAL;
    if (answers === "other" || code !== passiveCode[answers]) return line;
    const text = line.replace(/\r?\n$/, "");
    const port = announcedPort(answers, text);
    const instead = port === undefined ? undefined : this.#user.announced(answers, port, text);
    return instead === undefined ? CANNOT_OPEN : `${instead}\r\n`;
  }
}

/** Drops the lines before the last one of a reply that is replaced. */
function intermediate({ code, answers }: Reply, line: string): string {
  const isReplaced =
    answers === "refused" || code === (answers === "PASV" || answers === "EPSV" ? passiveCode[answers] : "");
  return isReplaced ? "" : line;
}

function commandOf(verb: string, argument: string): Command {
  if (REFUSED.has(verb)) return "refused";
  if (verb === "PASV") return verb;
  // EPSV ALL only promises not to use other commands (RFC 2428 §4).
  return verb === "EPSV" && argument !== "ALL" ? verb : "other";
}

/** Splits bytes into lines of bounded length and keeps the incomplete rest. Characters are bytes (ISO 8859-1). */
class Lines {
  readonly #maxBytes: number;
  #rest = "";

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Returns the complete lines, each with its line end, or undefined if one is too long. */
  take(chunk: Uint8Array): readonly string[] | undefined {
    const text = this.#rest + Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString("latin1");
    const lines: string[] = [];
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      if (end - start >= this.#maxBytes) return undefined;
      lines.push(text.slice(start, end + 1));
      start = end + 1;
    }
    this.#rest = text.slice(start);
    return this.#rest.length > this.#maxBytes ? undefined : lines;
  }
}
