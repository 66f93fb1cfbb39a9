import { Resolver } from "node:dns/promises";
import { errnoOf } from "../../errors.ts";
import { fieldsOf } from "../../lib/text/text-fields.ts";
import type { Reader } from "../reader.ts";

/** Result of a query: the name resolved, it did not, the server did not answer, or it refused the query. */
export type ServerAnswer = "ok" | "name-not-resolved" | "unreachable" | "misconfigured";

/** Queries one server for the addresses of a name. */
export type AskServer = (server: string, name: string, signal: AbortSignal) => Promise<ServerAnswer>;

const STUB = "127.0.0.53";
const MAX_SERVERS = 8;

/** Files that change with the resolver's configuration. */
export const RESOLVER_FILES = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"] as const;

/** Returns the name servers of resolv.conf(5), as written; behind systemd-resolved's stub, its upstream servers. */
export function readNameServers(reader: Reader): readonly string[] {
  const [configured, upstream] = RESOLVER_FILES;
  const servers = parseNameServers(reader.read(configured) ?? "");
  if (!servers.includes(STUB)) return servers;
  const behind = parseNameServers(reader.read(upstream) ?? "");
  return behind.length === 0 ? servers : behind;
}

export function parseNameServers(text: string): readonly string[] {
  const servers = text.split("\n").flatMap((line) => {
    const [keyword, server] = fieldsOf(line);
    return keyword === "nameserver" && server !== undefined ? [server.slice(0, 64)] : [];
  });
  return [...new Set(servers)].slice(0, MAX_SERVERS);
}

/** Queries a server (RFC 1035) for an A record, then an AAAA record, 3 s each. */
export const askServer: AskServer = async (server, name, signal) => {
  signal.throwIfAborted();
  const resolver = new Resolver({ timeout: 3000, tries: 1 });
  const cancel = (): void => resolver.cancel();
  try {
    resolver.setServers([server]);
  } catch {
    return "misconfigured";
  }
  signal.addEventListener("abort", cancel, { once: true });
  const first = await answerOf(resolver.resolve4(name));
  const answer = first === "name-not-resolved" ? await answerOf(resolver.resolve6(name)) : first;
  signal.removeEventListener("abort", cancel);
  signal.throwIfAborted();
  return answer;
};

async function answerOf(query: Promise<readonly string[]>): Promise<ServerAnswer> {
  try {
    return (await query).length > 0 ? "ok" : "name-not-resolved";
  } catch (error) {
    switch (errnoOf(error)) {
      case "ENOTFOUND":
      case "ENODATA":
      case "ESERVFAIL":
        return "name-not-resolved";
      case "EREFUSED":
      case "EFORMERR":
      case "ENOTIMP":
      case "EBADRESP":
        return "misconfigured";
      default:
        return "unreachable";
    }
  }
}
