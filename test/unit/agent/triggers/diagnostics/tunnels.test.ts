import { expect, test } from "vitest";
import { HostError, InputError } from "../../../../../src/errors.ts";
import {
  findPeer,
  fqdnOf,
  neededPath,
  neededPeer,
  silenceOf,
  tunnelPathText,
} from "../../../../../src/agent/triggers/diagnostics/tunnels.ts";
import {
  EDGE_1,
  EDGE_2,
  GATEWAY_1,
  refusedAs,
  someMesh,
  someNodes,
  somePath,
} from "../../../../support/overlay/scripted-tunnels.ts";

test.each([EDGE_2, "edge-2", "edge-2.example.net"])("%s names the node", (text) => {
  expect(findPeer(someNodes, text)?.uid).toBe(EDGE_2);
});

test.each(["edge-1", "edge", "edge-2.", "edge-2.example.org", "2", "", "192.0.2.1"])("%j names no node", (text) => {
  expect(findPeer(someNodes, text)).toBeUndefined();
});

test("knows no node before the registration", () => {
  expect(findPeer(undefined, "edge-2")).toBeUndefined();
  expect(fqdnOf(undefined, EDGE_2)).toBe(EDGE_2);
});

test("distinguishes an unknown node, this node itself and a disabled one", () => {
  const thrown = (work: () => unknown): unknown => {
    try {
      return work();
    } catch (error) {
      return error;
    }
  };
  expect(thrown(() => neededPeer(someNodes, "edge-9"))).toMatchObject({
    code: "not-found",
    message: "this node knows no node edge-9",
    details: { field: "dest" },
  });
  for (const self of ["edge-1", "edge-1.example.net", EDGE_1]) {
    expect(thrown(() => neededPeer(someNodes, self))).toMatchObject({
      code: "not-found",
      message: `${self} is this node itself`,
    });
  }
  expect(thrown(() => neededPeer({ ...someNodes, isActive: false }, "edge-2"))).toMatchObject({ code: "inactive" });
});

test("a path must exist, and the empty text is the built-in one or any", () => {
  const mesh = someMesh({ paths: [somePath(GATEWAY_1, { id: "wan2" })] });
  expect(neededPath(mesh, undefined)).toEqual({});
  expect(neededPath(mesh, "wan2")).toEqual({ path: "wan2" });
  expect(neededPath(mesh, "")).toEqual({});
  expect(neededPath(someMesh({ paths: [somePath(GATEWAY_1)] }), "")).toEqual({ path: "" });
  expect(() => neededPath(mesh, "wan3")).toThrow("no gateway path wan3");
  expect(() => neededPath(undefined, "wan2")).toThrow(InputError);
});

test("a path is written as the gateway's name and its own", () => {
  expect(tunnelPathText(someNodes, { gateway: GATEWAY_1, path: "wan2" })).toBe("gw-1.example.net, path wan2");
  expect(tunnelPathText(someNodes, { gateway: GATEWAY_1, path: "" })).toBe("gw-1.example.net, default path");
  expect(tunnelPathText(someNodes, { gateway: EDGE_1, path: "" })).toBe("this node's own gateway");
});

test("silence has two reasons, and anything else is a fault", () => {
  expect(silenceOf(refusedAs("timeout"))).toBe("timeout");
  expect(silenceOf(refusedAs("not-connected"))).toBe("not-connected");
  expect(silenceOf(new HostError("overlay-absent", "none"))).toBe("not-connected");
  expect(() => silenceOf(refusedAs("internal"))).toThrow("the overlay says internal");
  expect(() => silenceOf(new TypeError("bug"))).toThrow(TypeError);
});
