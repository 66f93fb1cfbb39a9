import { describe, expect, it } from "vitest";
import { purposeOf } from "../../../../../src/overlay/mesh/sessions/stream-router.ts";

const SELF = "00000000-0000-4000-8000-000000000001";
const OTHER = "00000000-0000-4000-8000-000000000002";

describe("a stream is routed", () => {
  it.each([
    [{ ":method": "CONNECT", ":authority": `${SELF}:443` }, { is: "tunnel" }],
    [{ ":method": "CONNECT", ":authority": `${SELF}:443`, "holdfast-service": "web" }, { is: "request" }],
    [{ ":method": "CONNECT", ":authority": `${SELF}:443`, ":protocol": "connect-udp" }, { is: "request" }],
    [{ ":method": "POST", ":path": "/echo" }, { is: "request" }],
    [{ ":method": "POST", ":path": "/perf", ":authority": `${SELF}:443` }, { is: "request" }],
    [{ ":method": "POST", ":path": "/taken", ":authority": `${SELF}:443` }, { is: "request" }],
    [
      { ":method": "CONNECT", ":authority": `${OTHER}:443` },
      { is: "passage", dest: OTHER, hops: 0 },
    ],
    [
      { ":method": "CONNECT", ":authority": `${OTHER}:443`, "holdfast-hops": "2" },
      { is: "passage", dest: OTHER, hops: 2 },
    ],
    [
      { ":method": "CONNECT", ":authority": `${OTHER}:443`, "holdfast-service": "web" },
      { is: "refused", reason: "relay-refused" },
    ],
    [
      { ":method": "CONNECT", ":authority": `${OTHER}:443`, ":protocol": "connect-udp" },
      { is: "refused", reason: "relay-refused" },
    ],
  ])("%j", (headers, purpose) => {
    expect(purposeOf(headers, SELF)).toEqual(purpose);
  });

  it.each([
    {},
    { ":method": "GET", ":path": "/echo" },
    { ":method": "POST", ":path": "/other" },
    { ":method": "POST", ":path": "/echo/../perf" },
    { ":method": "CONNECT" },
    { ":method": "CONNECT", ":authority": SELF },
    { ":method": "CONNECT", ":authority": `${OTHER}:22` },
    { ":method": "CONNECT", ":authority": `x@${OTHER}:443` },
    { ":method": "CONNECT", ":authority": "169.254.169.254:443" },
    { ":method": "CONNECT", ":authority": `${OTHER}:443`, "holdfast-hops": "-1" },
    { ":method": "CONNECT", ":authority": `${OTHER}:443`, "holdfast-hops": "1e1" },
    { ":method": "CONNECT", ":authority": `${OTHER}:443`, "holdfast-hops": "" },
  ])("nowhere: %j", (headers) => {
    expect(purposeOf(headers, SELF)).toEqual({ is: "refused", reason: "other" });
  });
});
