import { lstat, readlink, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { errnoOf, HostError } from "../../../errors.ts";
import { defaultRoute, parseRoutes } from "../ip/links.ts";
import type { Reader } from "../../reader.ts";
import { readRegularFile } from "../../files/regular-file.ts";
import { parseNameServers, RESOLVER_FILES } from "../../net/resolver.ts";
import type { FormerResolver, NetworkLedger } from "../state/ledger.ts";
import { changeResolverFile, MAX_RESOLVER_BYTES, resolverFailed, type ChangeResolverFile } from "./resolver-file.ts";
import { refusal, type ToolRunner } from "../ip/tool.ts";
import { defined } from "../../../lib/defined.ts";

export interface NameServersOptions {
  readonly tools: ToolRunner;
  readonly reader: Reader;
  readonly ledger: NetworkLedger;
  /** Path of resolv.conf(5). */
  readonly path?: string;
  /** Changes the file; by default this process does. */
  readonly changeFile?: ChangeResolverFile;
}

const MARK = "# Written by holdfast; what was here before comes back when the name servers are handed back.";
const STUB = "127.0.0.53";
const NO_LINK = /No such device|Unknown interface/i;
const MODE = 0o644;

/** The machine's name servers: those of systemd-resolved if it is in use, else of resolv.conf(5). */
export class NameServers {
  readonly #options: NameServersOptions;
  readonly #path: string;
  readonly #changeFile: ChangeResolverFile;

  constructor(options: NameServersOptions) {
    this.#options = options;
    this.#path = options.path ?? RESOLVER_FILES[0];
    this.#changeFile = options.changeFile ?? ((change) => changeResolverFile(this.#path, change));
  }

  /** Returns our name servers; undefined unless we have set them. */
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
   * Sets the name servers, or restores the system's own.
   * @throws {HostError} `resolver-failed` or `tool-missing`.
   */
  async set(servers: readonly string[] | undefined, signal: AbortSignal): Promise<void> {
    const former = (await this.#options.ledger.content()).resolver;
    if (servers === undefined) await this.#handBack(former, signal);
    else if (former === undefined ? await this.#isResolved() : former.kind === "resolved")
      await this.#tellResolved(former, servers, signal);
    else await this.#write(former, servers, signal);
  }

  /** Reports whether systemd-resolved writes the target of resolv.conf, or is its only name server. */
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
      throw new HostError(
        "resolver-failed",
        "systemd-resolved sets name servers by link, and no link has a default route",
      );
    }
    await ledger.change({ resolver: { kind: "resolved", link, servers: [...servers] } });
    await this.#resolvectl(["dns", link, ...servers], signal);
    await this.#resolvectl(["domain", link, "~."], signal);
  }

  async #resolvectl(args: readonly string[], signal: AbortSignal): Promise<void> {
    const result = await this.#options.tools.run("resolvectl", args, signal);
    if (result.exitCode !== 0) throw refusal("resolver-failed", "resolvectl", result);
  }

  async #write(former: FormerResolver | undefined, servers: readonly string[], signal: AbortSignal): Promise<void> {
    const recorded = former ?? (await this.#former());
    await this.#options.ledger.change({ resolver: recorded });
    const kept = (recorded.kind === "file" ? (recorded.text ?? "") : "")
      .split("\n")
      .filter((line) => /^\s*(?:search|domain|options|sortlist)\s/.test(line));
    const lines = [MARK, ...servers.map((server) => `nameserver ${server}`), ...kept, ""];
    const mode = (recorded.kind === "file" ? recorded.mode : undefined) ?? MODE;
    await this.#changeFile({ kind: "text", text: lines.join("\n"), mode }, signal);
  }

  async #former(): Promise<FormerResolver> {
    try {
      const target = (await lstat(this.#path)).isSymbolicLink() ? await readlink(this.#path) : undefined;
      const bytes = await readRegularFile(this.#path, MAX_RESOLVER_BYTES).catch((error: unknown) => {
        if (errnoOf(error) === "EFBIG") throw new Error("it is too large to store");
        return undefined;
      });
      const text = bytes?.toString("utf8");
      const mode = text === undefined ? undefined : (await stat(this.#path)).mode & 0o777;
      // The earlier content is unknown: the servers stay, without the mark.
      if (text !== undefined && isMarked(text)) return { kind: "file", text: unmarked(text) };
      return {
        kind: "file",
        ...defined({ text, mode, target }),
      };
    } catch (error) {
      if (errnoOf(error) === "ENOENT") return { kind: "file" };
      throw resolverFailed(this.#path, error);
    }
  }

  async #handBack(former: FormerResolver | undefined, signal: AbortSignal): Promise<void> {
    if (former?.kind === "resolved") {
      await this.#resolvectl(["revert", former.link], signal).catch((error: unknown) => {
        // Without the link or systemd-resolved, our servers are gone already.
        const isMoot = error instanceof HostError && (error.code === "tool-missing" || NO_LINK.test(error.message));
        if (!isMoot) throw error;
      });
    } else {
      const text = this.#options.reader.read(this.#path) ?? "";
      // A program that rewrote the file has taken it over.
      if (isMarked(text)) await this.#putBack(former ?? { kind: "file", text: unmarked(text) }, signal);
    }
    await this.#options.ledger.change({ resolver: undefined });
  }

  async #putBack(former: Extract<FormerResolver, { kind: "file" }>, signal: AbortSignal): Promise<void> {
    const { target, text, mode = MODE } = former;
    if (target !== undefined) await this.#changeFile({ kind: "link", target }, signal);
    else if (text === undefined) await this.#changeFile({ kind: "absent", mode }, signal);
    else await this.#changeFile({ kind: "text", text, mode }, signal);
  }
}

const isMarked = (text: string): boolean => text.startsWith(`${MARK}\n`);
const unmarked = (text: string): string => (isMarked(text) ? text.slice(MARK.length + 1) : text);
