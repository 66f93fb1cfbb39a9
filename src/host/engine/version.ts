import { z } from "zod";
import { HostError } from "../../errors.ts";
import type { EngineVersion } from "./engine.ts";
import { parsed } from "./parse.ts";

const Version = z.object({
  Version: z.string(),
  ApiVersion: z.string(),
  MinAPIVersion: z.string().optional(),
  Components: z.array(z.object({ Name: z.string() })).nullish(),
});

/** The calls used are the same in all these API versions. */
const OLDEST = "1.41";
const NEWEST = "1.47";

/** Parses the response of `GET /version`. */
export function parseVersion(body: string): EngineVersion {
  const data = parsed(Version, body, "the engine's version");
  const names = (data.Components ?? []).map(({ Name }) => Name);
  const product = names.some((name) => name.startsWith("Podman"))
    ? "podman"
    : names.includes("Engine")
      ? "docker"
      : "other";
  const { Version: version, ApiVersion: apiVersion } = data;
  return { product, version, apiVersion, minApiVersion: data.MinAPIVersion ?? apiVersion };
}

/**
 * Returns the newest Engine API version that both sides support.
 * @throws {HostError} `engine-unsupported` if there is none.
 */
export function negotiated({ product, version, apiVersion, minApiVersion }: EngineVersion): string {
  const name = product === "other" ? "the container engine" : product;
  if (compare(apiVersion, OLDEST) < 0) {
    throw unsupported(`${name} ${version} speaks version ${apiVersion} of the Engine API, ${OLDEST} is needed`);
  }
  if (compare(minApiVersion, NEWEST) > 0) {
    throw unsupported(
      `${name} ${version} wants version ${minApiVersion} of the Engine API, ${NEWEST} is the newest known`,
    );
  }
  return compare(apiVersion, NEWEST) < 0 ? apiVersion : NEWEST;
}

/** Reports whether one version is at least another. */
export function isAtLeast(version: string, wanted: string): boolean {
  return compare(version, wanted) >= 0;
}

function compare(a: string, b: string): number {
  const [majorA = 0, minorA = 0] = a.split(".").map(Number);
  const [majorB = 0, minorB = 0] = b.split(".").map(Number);
  return majorA - majorB || minorA - minorB;
}

function unsupported(message: string): HostError {
  return new HostError("engine-unsupported", message);
}
