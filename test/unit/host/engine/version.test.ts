import { expect, test } from "vitest";
import { isAtLeast, negotiated, parseVersion } from "../../../../src/host/engine/version.ts";

const version = (apiVersion: string, minApiVersion: string) =>
  ({ product: "docker", version: "1", apiVersion, minApiVersion }) as const;

test("uses the newest version that both support", () => {
  expect(negotiated(version("1.41", "1.12"))).toBe("1.41");
  expect(negotiated(version("1.43", "1.12"))).toBe("1.43");
  expect(negotiated(version("1.99", "1.44"))).toBe("1.47");
  expect(isAtLeast("1.100", "1.42")).toBe(true);
  expect(isAtLeast("1.9", "1.42")).toBe(false);
});

test("refuses too old and too new engines by name", () => {
  expect(() => negotiated(version("1.40", "1.12"))).toThrow(
    "docker 1 speaks version 1.40 of the Engine API, 1.41 is needed",
  );
  expect(() => negotiated(version("1.60", "1.50"))).toThrow("docker 1 wants version 1.50");
});

test("recognizes products by their components", () => {
  const text = (names: readonly string[]): string =>
    JSON.stringify({ Version: "9", ApiVersion: "1.41", Components: names.map((Name) => ({ Name })) });
  expect(parseVersion(text(["Podman Engine", "Conmon"]))).toEqual({
    ...version("1.41", "1.41"),
    product: "podman",
    version: "9",
  });
  expect(parseVersion(text(["Engine"])).product).toBe("docker");
  expect(parseVersion('{"Version":"9","ApiVersion":"1.41"}').product).toBe("other");
  for (const wrong of ["", "{}", '{"Version":9}']) expect(() => parseVersion(wrong)).toThrow("the engine's version");
});
