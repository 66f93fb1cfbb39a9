import { formatBytes, formatCount, formatSpan } from "../../lib/text/durations.ts";
import type { GatewayServerView, PathView, PeerSessionView, PeerView } from "../../protocol/local/mesh.ts";
import { stateText, type ItemText } from "./overlay-text.ts";
import type { Paint } from "../frame/terminal.ts";

/** Formats a path to a gateway: its state with time and reason, and whether it carries the traffic. `now` is in Unix milliseconds. */
export function pathText(gateway: string, path: PathView, now: number, paint: Paint): ItemText {
  const { id, state, since, reason, carries, attempts } = path;
  const span = since === undefined ? "" : ` ${formatSpan(now - since)}`;
  const carrier = carries ? `, ${paint("green", "carries")}` : "";
  const tried = state === "up" || state === "pending" ? "" : `; tried ${formatCount(attempts, "time")}`;
  return {
    head: `${paint("bold", gateway)} ${pathName(id)} ${stateText(state, paint)}${span}${placeText(path)}${carrier}`,
    details: [
      ...(reason === undefined ? [] : [`why: ${reason}`]),
      ...(state === "pending"
        ? ["the overlay does not have it yet"]
        : [`${qualityText(path)}${movedText(path)}${tried}`]),
    ],
  };
}

/** Returns the name of a path; the built-in one has no id. */
export function pathName(id: string): string {
  return id === "" ? "(default path)" : `(path ${id})`;
}

/** Formats the node's own gateway: its addresses, relayed flows and rejected connections. */
export function serverText(server: GatewayServerView, paint: Paint): ItemText {
  const { state, reason, message, refused, relays, addresses, port, clients, admitted } = server;
  const rejected = Object.entries(refused).filter(([, count]) => count > 0);
  const at = addresses.map((ip) => addressText(ip, port)).join(", ");
  return {
    head: `${paint("bold", "own gateway")} ${stateText(state, paint)} ${at}`,
    details: [
      ...(message === undefined && reason === undefined ? [] : [`why: ${message ?? reason ?? ""}`]),
      `clients ${clients} of ${admitted}; relays ${relays.active} now, ${relays.total} in all, ${formatBytes(relays.bytes)}`,
      ...(rejected.length === 0 ? [] : [`rejected: ${rejected.map(([why, count]) => `${count} ${why}`).join(", ")}`]),
    ],
  };
}

/** Formats another node: its reachability, how it dials this one, the sessions with it, and the services it may use here. */
export function peerText(peer: PeerView, now: number, paint: Paint): ItemText {
  const { fqdn, state, since, client, sessions, grants, moreGrants } = peer;
  const span = since === undefined ? "" : ` ${formatSpan(now - since)}`;
  const services = grants.map(({ service, protocol }) => `${service} (${protocol})`);
  const more = moreGrants === undefined ? "" : ` and ${moreGrants} more`;
  return {
    head: `${paint("bold", fqdn)} ${stateText(state, paint)}${span}`,
    details: [
      ...(client === undefined ? [] : clientLines(client, now, paint)),
      ...sessions.flatMap((session) => sessionLines(peer, session, now)),
      ...(services.length === 0 ? [] : [`may use here: ${services.join(", ")}${more}`]),
    ],
  };
}

function clientLines(client: NonNullable<PeerView["client"]>, now: number, paint: Paint): readonly string[] {
  const { state, since, reason, sessions, remote, rttMs } = client;
  const from = remote === undefined ? "" : ` from ${addressText(remote.ip, remote.port)}`;
  const why = reason === undefined ? "" : `: ${reason}`;
  return [
    `dials this node: ${stateText(state, paint)} ${formatSpan(now - since)}${from}, ${formatCount(sessions, "session")}${why}`,
    `${rttText(rttMs)}${movedText(client)}`,
  ];
}

/** Formats the direction of a session, and its gateway. */
function sessionLines({ name }: PeerView, session: PeerSessionView, now: number): readonly string[] {
  const { role, gateway, path, since, activeFlows, flows } = session;
  const direction = role === "source" ? "session to it" : "session from it";
  const via = gateway === name ? `directly ${pathName(path)}` : `via ${gateway} ${pathName(path)}`;
  return [
    `${direction} ${via} ${formatSpan(now - since)}: flows ${activeFlows} now, ${flows} in all; ${movedText(session)}`,
  ];
}

/** Formats an address with a port as in URLs (RFC 3986 §3.2.2). */
function addressText(ip: string, port: number): string {
  return `${ip.includes(":") ? `[${ip}]` : ip}:${port}`;
}

function placeText({ remote, host, port, local }: PathView): string {
  const to = remote === undefined ? addressText(host, port) : addressText(remote.ip, remote.port);
  return ` ${to}${local === undefined ? "" : ` from ${local}`}`;
}

function qualityText({ rttMs, loss }: PathView): string {
  return `${rttText(rttMs)}loss ${Math.round(loss * 100)}%; `;
}

function rttText(rttMs: number | undefined): string {
  return rttMs === undefined ? "" : `rtt ${rttMs.toFixed(rttMs < 10 ? 2 : 1)} ms; `;
}

function movedText({ bytesIn, bytesOut }: { readonly bytesIn: number; readonly bytesOut: number }): string {
  return `${formatBytes(bytesIn)} in, ${formatBytes(bytesOut)} out`;
}
