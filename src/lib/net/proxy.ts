import { isIP } from "node:net";

/** Proxies as the environment or the settings name them; `noProxy` is the usual comma-separated list. */
export interface ProxySettings {
  readonly https?: URL;
  readonly http?: URL;
  readonly noProxy: readonly string[];
}

/** The proxy a connection must go through, or undefined for a direct one. Loopback never goes through a proxy. */
export function proxyFor(settings: ProxySettings, host: string, port: number, isTls: boolean): URL | undefined {
  const proxy = isTls ? settings.https : settings.http;
  if (proxy === undefined || isLoopback(host)) return undefined;
  return isListed(settings.noProxy, host, port) ? undefined : proxy;
}

/** Reports whether a list, written as `noProxy` is, contains a host at a port. */
export function isListed(rules: readonly string[], host: string, port: number): boolean {
  return rules.some((rule) => matches(rule.toLowerCase(), host.toLowerCase(), port));
}

/** Whether a host name or address means this machine itself. */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[|\]$/g, "").toLowerCase();
  if (bare === "localhost" || bare.endsWith(".localhost")) return true;
  return isIP(bare) === 4 ? bare.startsWith("127.") : bare === "::1";
}

/** Reads the list of a NO_PROXY variable. */
export function parseNoProxy(text: string | undefined): readonly string[] {
  return (text ?? "")
    .split(",")
    .map((rule) => rule.trim().toLowerCase())
    .filter((rule) => rule !== "");
}

function matches(rule: string, host: string, port: number): boolean {
  if (rule === "*") return true;
  const [name = "", onlyPort] = isIP(rule) === 6 ? [rule] : splitPort(rule);
  if (onlyPort !== undefined && Number(onlyPort) !== port) return false;
  const suffix = name.replace(/^\*?\./, "");
  return host === suffix || host.endsWith(`.${suffix}`);
}

/** Name and port of a rule; an IPv6 address has a port only after its brackets (RFC 3986 §3.2.2). */
function splitPort(rule: string): readonly (string | undefined)[] {
  const bracketed = /^\[([^\]]*)\](?::(\d+))?$/.exec(rule);
  return bracketed === null ? rule.split(":", 2) : bracketed.slice(1);
}
