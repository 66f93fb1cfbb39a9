import { formatBytes, formatCount, formatSpan } from "../lib/durations.ts";
import type { ClientView, GatewayPathView, GatewaysReport, PeerSessionView } from "../protocol/local-network.ts";
import { stateText, type ItemText, type Paint } from "./overlay-text.ts";

/** A path to a gateway: which, how it stands, since when and why, and whether it carries; `now` in Unix milliseconds. */
export function pathText(path: GatewayPathView, now: number, paint: Paint): ItemText {
  const { name, id, state, since, reason, carries, attempts } = path;
  const which = `${paint("bold", name)} ${pathName(id)}`;
  const where = placeText(path);
  return {
    head: `${which} ${stateText(state, paint)} ${formatSpan(now - since)}${where}${carries ? `, ${paint("green", "carries")}` : ""}`,
    details: [
      ...(reason === undefined ? [] : [`why: ${reason}`]),
      `${qualityText(path)}${movedText(path)}${state === "up" ? "" : `; tried ${formatCount(attempts, "time")}`}`,
    ],
  };
}

/** What a path is called: the built-in one has no id. */
export function pathName(id: string): string {
  return id === "" ? "(default path)" : `(path ${id})`;
}

/** The node's own gateway: where it listens, what it relays, whom it turned away. */
export function serverText(server: NonNullable<GatewaysReport["server"]>, paint: Paint): ItemText {
  const { state, reason, message, refused, relays, addresses, port } = server;
  const at = addresses === undefined ? "" : ` ${addresses.map((ip) => addressText(ip, port)).join(", ")}`;
  const turnedAway = Object.entries(refused).filter(([, count]) => count > 0);
  return {
    head: `${paint("bold", "own gateway")} ${stateText(state, paint)}${at}`,
    details: [
      ...(message === undefined && reason === undefined ? [] : [`why: ${message ?? reason ?? ""}`]),
      `relays ${relays.active} now, ${relays.total} in all, ${formatBytes(relays.bytes)}`,
      ...(turnedAway.length === 0
        ? []
        : [`turned away: ${turnedAway.map(([why, count]) => `${count} ${why}`).join(", ")}`]),
    ],
  };
}

/** A node that dials this node's gateway, or did. */
export function clientText(client: ClientView, now: number, paint: Paint): ItemText {
  const { name, state, since, reason, sessions, remote } = client;
  const from = remote === undefined ? "" : ` from ${addressText(remote.ip, remote.port)}`;
  return {
    head: `${paint("bold", name)} client ${stateText(state, paint)} ${formatSpan(now - since)}${from}, ${formatCount(sessions, "session")}`,
    details: [...(reason === undefined ? [] : [`why: ${reason}`]), `${rttText(client.rttMs)}${movedText(client)}`],
  };
}

/** A session with another node: which way round, and by which gateway. */
export function sessionText(session: PeerSessionView, now: number, paint: Paint): ItemText {
  const { name, role, peer, gateway, gatewayName, path, since, activeFlows, flows } = session;
  const direction = role === "source" ? "session to it" : "session from it";
  const via = gateway === peer ? `directly ${pathName(path)}` : `via ${gatewayName} ${pathName(path)}`;
  return {
    head: `${paint("bold", name)} ${direction} ${via} ${formatSpan(now - since)}`,
    details: [`flows ${activeFlows} now, ${flows} in all; ${movedText(session)}`],
  };
}

/** An address with a port, as URLs have it (RFC 3986 §3.2.2). */
export function addressText(ip: string, port: number | undefined): string {
  const host = ip.includes(":") ? `[${ip}]` : ip;
  return port === undefined ? host : `${host}:${port}`;
}

function placeText({ remote, host, port, local }: GatewayPathView): string {
  const to =
    remote === undefined
      ? host === undefined
        ? undefined
        : addressText(host, port)
      : addressText(remote.ip, remote.port);
  return `${to === undefined ? "" : ` ${to}`}${local === undefined ? "" : ` from ${local}`}`;
}

function qualityText({ rttMs, loss }: GatewayPathView): string {
  return `${rttText(rttMs)}loss ${Math.round(loss * 100)}%; `;
}

function rttText(rttMs: number | undefined): string {
  return rttMs === undefined ? "" : `rtt ${rttMs.toFixed(rttMs < 10 ? 2 : 1)} ms; `;
}

function movedText({ bytesIn, bytesOut }: { readonly bytesIn: number; readonly bytesOut: number }): string {
  return `${formatBytes(bytesIn)} in, ${formatBytes(bytesOut)} out`;
}
