import type { IncomingHttpHeaders } from "node:http2";
import { describe, expect, it } from "vitest";
import { flowHeaders, readFlow, type FlowRequest } from "../../../../../src/overlay/mesh/transport/wire.ts";

const common = { service: "web", flow: "0a-1", client: { ip: "10.0.0.1", port: 5 } };

/** Headers as received by the other node. */
function received(request: FlowRequest, more: Readonly<Record<string, string>> = {}): IncomingHttpHeaders {
  const entries = Object.entries({ ...flowHeaders("uid", request), ...more });
  return Object.fromEntries(entries.map(([name, value]) => [name, String(value)]));
}

describe("the headers of a flow", () => {
  it.each<[string, FlowRequest]>([
    ["tcp", { ...common, protocol: "tcp" }],
    ["udp", { ...common, protocol: "udp" }],
    ["ftp", { ...common, protocol: "tcp", application: "ftp" }],
    ["tftp", { ...common, protocol: "udp", application: "tftp" }],
    ["tcp", { ...common, protocol: "tcp", isQuestion: true }],
    ["ftp-data", { ...common, protocol: "tcp", data: { control: "0b-2", port: 40_000 } }],
  ])("are complete for %s", (name, request) => {
    const headers = received(request);
    expect(headers["holdfast-protocol"]).toBe(name);
    expect(readFlow(headers)).toEqual(request);
  });

  it.each<[string, Readonly<Record<string, string>>]>([
    ["no port", { "holdfast-port": "" }],
    ["port 0", { "holdfast-port": "0" }],
    ["a port too high", { "holdfast-port": "65536" }],
    ["an odd port", { "holdfast-port": "0x50" }],
    ["two ports", { "holdfast-port": "80, 81" }],
    ["an odd control connection", { "holdfast-control": "../x" }],
    ["datagrams", { ":protocol": "connect-udp" }],
    ["another extension", { ":protocol": "websocket" }],
  ])("are refused for a data connection with %s", (_, more) => {
    const data = { control: "0b-2", port: 40_000 };
    expect(readFlow(received({ ...common, protocol: "tcp", data }, more))).toBeUndefined();
  });

  it.each(["sctp", "ftps", "FTP", "toString", ""])("are refused for a protocol %j", (protocol) => {
    expect(readFlow(received({ ...common, protocol: "tcp" }, { "holdfast-protocol": protocol }))).toBeUndefined();
  });

  it("are refused when stream and datagrams are mixed", () => {
    const [stream, datagrams] = [received({ ...common, protocol: "tcp" }), received({ ...common, protocol: "udp" })];
    for (const protocol of ["udp", "tftp"])
      expect(readFlow({ ...stream, "holdfast-protocol": protocol })).toBeUndefined();
    for (const protocol of ["tcp", "ftp"])
      expect(readFlow({ ...datagrams, "holdfast-protocol": protocol })).toBeUndefined();
  });
});
