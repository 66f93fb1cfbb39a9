import { isIP } from "node:net";

/** Proxies from the environment or the settings; `noProxy` is the usual comma-separated list. */
export interface ProxySettings {
  readonly https?: URL;
  readonly http?: URL;
  readonly noProxy: readonly string[];
}

/** Returns the proxy for a connection, or undefined for a direct one. Loopback is always direct. */
export function proxyFor(settings: ProxySettings, host: string, port: number, isTls: boolean): URL | undefined {
  const proxy = isTls ? settings.https : settings.http;
  if (proxy === undefined || isLoopback(host)) return undefined;
  return isListed(settings.noProxy, host, port) ? undefined : proxy;
}

/** Reports whether a list in `noProxy` syntax contains a host and port. */
export function isListed(rules: readonly string[], host: string, port: number): boolean {
  return rules.some((rule) => matches(rule.toLowerCase(), host.toLowerCase(), port));
}

/** Reports whether a host name or address is loopback. */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[|\]$/g, "").toLowerCase();
  if (bare === "localhost" || bare.endsWith(".localhost")) return true;
  return isIP(bare) === 4 ? bare.startsWith("127.") : bare === "::1";
}

/** Parses the value of NO_PROXY. */
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

/** Splits a rule into name and port; an IPv6 address needs brackets before a port (RFC 3986 §3.2.2). */
function splitPort(rule: string): readonly (string | undefined)[] {
  const bracketed = /^\[([^\]]*)\](?::(\d+))?$/.exec(rule);
  return bracketed === null ? rule.split(":", 2) : bracketed.slice(1);
}
