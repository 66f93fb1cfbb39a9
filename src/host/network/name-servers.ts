import { randomBytes } from "node:crypto";
import { chmod, lstat, readFile, readlink, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { errnoOf, HostError, toError } from "../../errors.ts";
import { defaultRoute, parseRoutes } from "../links.ts";
import type { Reader } from "../reader.ts";
import { parseNameServers, RESOLVER_FILES } from "../resolver.ts";
import type { FormerResolver, NetworkLedger } from "./ledger.ts";
import { refusal, type ToolRunner } from "./tool.ts";

export interface NameServersOptions {
  readonly tools: ToolRunner;
  readonly reader: Reader;
  readonly ledger: NetworkLedger;
  /** The file of resolv.conf(5). */
  readonly path?: string;
}

const MARK = "# Written by holdfast; what was here before comes back when the name servers are handed back.";
const STUB = "127.0.0.53";
const NO_LINK = /No such device|Unknown interface/i;
const MAX_FORMER_BYTES = 65_536;

/** The name servers that this machine asks: those of systemd-resolved where it is in charge, else resolv.conf(5) itself. */
export class NameServers {
  readonly #options: NameServersOptions;
  readonly #path: string;

  constructor(options: NameServersOptions) {
    this.#options = options;
    this.#path = options.path ?? RESOLVER_FILES[0];
  }

  /** Undefined unless we have set them. */
  async observe(): Promise<readonly string[] | undefined> {
    const { reader, ledger } = this.#options;
    const former = (await ledger.content()).resolver;
    if (former?.kind === "resolved") {
      const asked = parseNameServers(reader.read(RESOLVER_FILES[1]) ?? "");
      return former.servers.every((server) => asked.includes(server)) ? former.servers : asked;
    }
    const text = reader.read(this.#path) ?? "";
    return former === undefined && !isMarked(text) ? undefined : parseNameServers(text);
  }

  /**
   * Sets them, or hands them back.
   * @throws {HostError} `resolver-failed` or `tool-missing`.
   */
  async set(servers: readonly string[] | undefined, signal: AbortSignal): Promise<void> {
    const former = (await this.#options.ledger.content()).resolver;
    if (servers === undefined) await this.#handBack(former, signal);
    else if (former === undefined ? await this.#isResolved() : former.kind === "resolved")
      await this.#tellResolved(former, servers, signal);
    else await this.#write(former, servers);
  }

  /** Whether systemd-resolved writes what resolv.conf leads to, or is the only one asked. */
  async #isResolved(): Promise<boolean> {
    const text = this.#options.reader.read(this.#path) ?? "";
    if (isMarked(text)) return false;
    const target = await readlink(this.#path).catch(() => undefined);
    const leadsTo = target === undefined ? "" : resolve(dirname(this.#path), target);
    return leadsTo.startsWith("/run/systemd/resolve/") || parseNameServers(text).includes(STUB);
  }

  async #tellResolved(
    former: FormerResolver | undefined,
    servers: readonly string[],
    signal: AbortSignal,
  ): Promise<void> {
    const { reader, ledger } = this.#options;
    const route = defaultRoute(parseRoutes(reader.read("/proc/net/route") ?? ""), 4);
    const link = former?.kind === "resolved" ? former.link : route?.link;
    if (link === undefined) {
      throw new HostError("resolver-failed", "name servers belong to a link, and none has a default route");
    }
    await ledger.change({ resolver: { kind: "resolved", link, servers: [...servers] } });
    await this.#resolvectl(["dns", link, ...servers], signal);
    await this.#resolvectl(["domain", link, "~."], signal);
  }

  async #resolvectl(args: readonly string[], signal: AbortSignal): Promise<void> {
    const told = await this.#options.tools.run("resolvectl", args, signal);
    if (told.exitCode !== 0) throw refusal("resolver-failed", "resolvectl", told);
  }

  async #write(former: FormerResolver | undefined, servers: readonly string[]): Promise<void> {
    const recorded = former ?? (await this.#former());
    await this.#options.ledger.change({ resolver: recorded });
    const kept = (recorded.kind === "file" ? (recorded.text ?? "") : "")
      .split("\n")
      .filter((line) => /^\s*(?:search|domain|options|sortlist)\s/.test(line));
    const lines = [MARK, ...servers.map((server) => `nameserver ${server}`), ...kept, ""];
    await this.#replace(lines.join("\n"), recorded.kind === "file" ? recorded.mode : undefined);
  }

  async #former(): Promise<FormerResolver> {
    try {
      const target = (await lstat(this.#path)).isSymbolicLink() ? await readlink(this.#path) : undefined;
      const text = await readFile(this.#path, "utf8").catch(() => undefined);
      const mode = text === undefined ? undefined : (await stat(this.#path)).mode & 0o777;
      if (text !== undefined && Buffer.byteLength(text) > MAX_FORMER_BYTES)
        throw new Error("it is too large to be kept");
      // What was there before is not known: the servers stay, without the mark.
      if (text !== undefined && isMarked(text)) return { kind: "file", text: unmarked(text) };
      return {
        kind: "file",
        ...(text === undefined ? {} : { text }),
        ...(mode === undefined ? {} : { mode }),
        ...(target === undefined ? {} : { target }),
      };
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return { kind: "file" };
      throw failed(this.#path, error);
    }
  }

  async #handBack(former: FormerResolver | undefined, signal: AbortSignal): Promise<void> {
    if (former?.kind === "resolved") {
      await this.#resolvectl(["revert", former.link], signal).catch((error: unknown) => {
        // Without the link, or without systemd-resolved, nobody knows of our servers any more.
        const isMoot = error instanceof HostError && (error.code === "tool-missing" || NO_LINK.test(error.message));
        if (!isMoot) throw error;
      });
    } else {
      const text = this.#options.reader.read(this.#path) ?? "";
      // Who has written it since has taken it over.
      if (isMarked(text)) await this.#putBack(former ?? { kind: "file", text: unmarked(text) });
    }
    await this.#options.ledger.change({ resolver: undefined });
  }

  async #putBack(former: Extract<FormerResolver, { kind: "file" }>): Promise<void> {
    const { target, text, mode } = former;
    if (target !== undefined) {
      const temporary = `${this.#path}.${randomBytes(6).toString("hex")}.tmp`;
      try {
        await symlink(target, temporary);
        await rename(temporary, this.#path);
      } catch (error) {
        await rm(temporary, { force: true });
        throw failed(this.#path, error);
      }
    } else if (text === undefined) {
      await rm(this.#path, { force: true }).catch(async (error: unknown) => {
        if (errnoOf(error) !== "EBUSY") throw failed(this.#path, error);
        await this.#replace("", mode);
      });
    } else await this.#replace(text, mode);
  }

  /** In one step, except where the file is a mount of its own, as in a container. */
  async #replace(text: string, mode = 0o644): Promise<void> {
    const temporary = `${this.#path}.${randomBytes(6).toString("hex")}.tmp`;
    try {
      await writeFile(temporary, text, { mode, flag: "wx", flush: true });
      // The umask keeps our files to ourselves, and this one is everybody's.
      await chmod(temporary, mode);
      await rename(temporary, this.#path);
      return;
    } catch (error) {
      await rm(temporary, { force: true }).catch(() => undefined);
      if (!["EBUSY", "EROFS", "EACCES", "EPERM"].includes(errnoOf(error) ?? "")) throw failed(this.#path, error);
    }
    await writeFile(this.#path, text, { flush: true }).catch((error: unknown) => {
      throw failed(this.#path, error);
    });
  }
}

const isMarked = (text: string): boolean => text.startsWith(`${MARK}\n`);
const unmarked = (text: string): string => (isMarked(text) ? text.slice(MARK.length + 1) : text);

function failed(path: string, cause: unknown): HostError {
  return new HostError("resolver-failed", `cannot set the name servers in ${path}: ${toError(cause).message}`, {
    cause,
    details: { path },
  });
}
