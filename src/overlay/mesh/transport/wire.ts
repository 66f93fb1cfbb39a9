import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2";
import { isIP } from "node:net";
import { OverlayReason, type Application } from "../../../protocol/overlay/overlay.ts";

/** Request to open a flow to a service of another node. */
export interface FlowRequest {
  /** Name of a service, or `IP:port`. */
  readonly service: string;
  readonly protocol: "tcp" | "udp";
  readonly application?: Application | undefined;
  /** Present for an FTP data connection: the flow of its control connection, and the announced port. */
  readonly data?: { readonly control: string; readonly port: number } | undefined;
  /** The same in the records of both ends. */
  readonly flow: string;
  /** Connector named by the source; absent if its name does not fit into a header. */
  readonly connector?: string | undefined;
  /** Client of the source, as reported by the source. */
  readonly client: { readonly ip: string; readonly port: number };
  /** Asks only for the answer; carries nothing. */
  readonly isQuestion?: true | undefined;
}

const MAX_SERVICE = 253;
const CONNECTOR = /^[\x21-\x7e]{1,253}$/;
const PORT = /^[1-9]\d{0,4}$/;
const FLOW_ID = /^[0-9a-f-]{1,64}$/;

const statuses: Readonly<Partial<Record<OverlayReason, number>>> = {
  "unknown-service": 404,
  "not-granted": 403,
  "literal-not-permitted": 403,
  "connect-refused": 502,
  unreachable: 502,
  "resolve-failed": 502,
  "peer-absent": 502,
  "connect-timeout": 504,
  "service-down": 503,
  "out-of-resources": 503,
  "too-many-flows": 503,
  "relay-refused": 403,
  loop: 508,
  "protocol-mismatch": 415,
};

/** Reasons of answers without a `holdfast-reason` header. */
const reasons: Readonly<Record<number, OverlayReason>> = {
  403: "not-granted",
  404: "unknown-service",
  415: "protocol-mismatch",
  502: "unreachable",
  503: "out-of-resources",
  504: "connect-timeout",
  508: "loop",
};

/** Returns the headers of a CONNECT (RFC 9113 §8.5), for UDP an extended one (RFC 8441 §4). */
export function flowHeaders(peer: string, request: FlowRequest): OutgoingHttpHeaders {
  const { service, protocol, application, flow, connector = "", client, data, isQuestion } = request;
  const udp =
    protocol === "udp"
      ? { ":protocol": "connect-udp", ":scheme": "https", ":path": "/", "capsule-protocol": "?1" }
      : {};
  return {
    ":method": "CONNECT",
    ":authority": `${peer}:443`,
    ...udp,
    "holdfast-service": service,
    "holdfast-protocol": data === undefined ? (application ?? protocol) : "ftp-data",
    ...(data === undefined ? {} : { "holdfast-control": data.control, "holdfast-port": String(data.port) }),
    "holdfast-flow": flow,
    ...(CONNECTOR.test(connector) ? { "holdfast-connector": connector } : {}),
    "holdfast-client": `${client.ip}:${client.port}`,
    ...(isQuestion === true ? { "holdfast-ask": "1" } : {}),
  };
}

/** Parses the request of a flow; undefined if it is invalid. Checks the form only, not whether it is granted. */
export function readFlow(headers: IncomingHttpHeaders): FlowRequest | undefined {
  const service = headers["holdfast-service"];
  const protocol = headers["holdfast-protocol"];
  const flow = headers["holdfast-flow"];
  if (headers[":method"] !== "CONNECT" || typeof service !== "string" || service.length > MAX_SERVICE) return undefined;
  if (service === "" || typeof flow !== "string" || !FLOW_ID.test(flow)) return undefined;
  const client = readPlace(headers["holdfast-client"]);
  if (client === undefined) return undefined;
  const isQuestion = headers["holdfast-ask"] === "1" ? ({ isQuestion: true } as const) : {};
  const connector = headers["holdfast-connector"];
  const through = typeof connector === "string" && CONNECTOR.test(connector) ? { connector } : {};
  const common = { service, flow, ...through, client, ...isQuestion };
  const isExtended = headers[":protocol"] === "connect-udp";
  if (!isExtended && headers[":protocol"] !== undefined) return undefined;
  switch (protocol) {
    case "tcp":
      return isExtended ? undefined : { ...common, protocol };
    case "udp":
      return isExtended ? { ...common, protocol } : undefined;
    case "ftp":
      return isExtended ? undefined : { ...common, protocol: "tcp", application: protocol };
    case "tftp":
      return isExtended ? { ...common, protocol: "udp", application: protocol } : undefined;
    case "ftp-data": {
      const data = isExtended ? undefined : readData(headers);
      return data && { ...common, protocol: "tcp", data };
    }
    default:
      return undefined;
  }
}

function readData(headers: IncomingHttpHeaders): FlowRequest["data"] {
  const control = headers["holdfast-control"];
  const port = headers["holdfast-port"];
  if (typeof control !== "string" || !FLOW_ID.test(control)) return undefined;
  return typeof port === "string" && PORT.test(port) && Number(port) <= 65_535
    ? { control, port: Number(port) }
    : undefined;
}

/** Parses `ip:port`, IPv6 without brackets. */
export function readPlace(text: unknown): { readonly ip: string; readonly port: number } | undefined {
  if (typeof text !== "string" || text.length > 64) return undefined;
  const at = text.lastIndexOf(":");
  const ip = text.slice(0, at);
  const digits = text.slice(at + 1);
  if (at < 0 || isIP(ip) === 0 || ip.includes("%") || !/^\d{1,5}$/.test(digits)) return undefined;
  const port = Number(digits);
  return port >= 1 && port <= 65_535 ? { ip, port } : undefined;
}

/** Returns the headers of a refusal. */
export function refusalHeaders(reason: OverlayReason): OutgoingHttpHeaders {
  return { ":status": statuses[reason] ?? 500, "holdfast-reason": reason };
}

/** Returns why a flow was refused; undefined if it was accepted. */
export function refusalOf(headers: IncomingHttpHeaders): OverlayReason | undefined {
  const status = Number(headers[":status"]);
  if (status === 200) return undefined;
  const said = OverlayReason.safeParse(headers["holdfast-reason"]);
  return said.success ? said.data : (reasons[status] ?? "other");
}
