import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { z } from "zod";
import { InputError } from "../../../../src/errors.ts";
import { claimsByType } from "../../../../src/protocol/documents/claims.ts";
import { ClusterDocument, DomainDocument, NodeDocument } from "../../../../src/protocol/documents/documents.ts";
import {
  describeIssues,
  parseMessage,
  SESSION_LIMITS,
  type Message,
} from "../../../../src/protocol/channel/envelope.ts";
import { NodeKeys, NodeThumbprints } from "../../../../src/protocol/values/keys.ts";
import { controlMethods, nodeMethods } from "../../../../src/protocol/channel/methods.ts";
import { sectionNames, sectionOwners, sectionSuits } from "../../../../src/protocol/sections/sections.ts";
import { ShadowMap } from "../../../../src/protocol/values/shadow.ts";
import { recordByStream } from "../../../../src/protocol/documents/telemetry.ts";
import { nearValidValues, validValues, withUnknownFields } from "../../../support/arbitrary.ts";
import { runs } from "../../../support/sample.ts";

const methods = Object.entries({ ...nodeMethods, ...controlMethods });
const schemas: readonly (readonly [string, z.ZodType])[] = [
  ...methods.flatMap(([name, { params, result }]) => [
    [`${name} params`, params] as const,
    [`${name} result`, result] as const,
  ]),
  ...Object.entries(claimsByType),
  ["node document", NodeDocument],
  ["cluster document", ClusterDocument],
  ["domain document", DomainDocument],
  ["node keys", NodeKeys],
  ["node thumbprints", NodeThumbprints],
  ["shadow map", ShadowMap],
  ...Object.entries(recordByStream).map(([name, schema]) => [`${name} record`, schema] as const),
];

const RUNS = { numRuns: runs(60) };

describe.each(schemas)("%s", (_name, schema) => {
  const values = validValues(schema);

  test("accepts every valid value, through a frame and back", () => {
    fc.assert(
      fc.property(values, (value) => {
        const parsed = schema.parse(value);
        const message = throughFrame(parsed);
        expect(schema.parse(message)).toEqual(parsed);
      }),
      RUNS,
    );
  });

  test("ignores unknown fields", () => {
    fc.assert(
      fc.property(values, (value) => {
        expect(schema.parse(withUnknownFields(schema, value))).toEqual(schema.parse(value));
      }),
      RUNS,
    );
  });

  test("names the field of a near-valid value, and throws only an InputError", () => {
    fc.assert(
      fc.property(nearValidValues(schema), ({ path, value }) => {
        let received: unknown;
        try {
          received = throughFrame(value);
        } catch (error) {
          expect(error).toBeInstanceOf(InputError);
          return;
        }
        const parsed = schema.safeParse(received);
        if (parsed.success) return;
        const lines = describeIssues(parsed.error, "it");
        const named = lines.map((line) => line.slice(0, line.indexOf(":")).split(".").slice(1).join("."));
        // For a dropped field a union may name the field that another of its forms has in its place.
        const wrong = path.join(".");
        const parent = path.slice(0, -1).join(".");
        expect(named.some((field) => field.startsWith(parent) || wrong.startsWith(field))).toBe(true);
      }),
      { numRuns: runs(150) },
    );
  });
});

function throughFrame(params: unknown): unknown {
  const frame = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "some.method", params });
  const message: Message = parseMessage(frame, SESSION_LIMITS);
  return message.kind === "request" ? message.params : undefined;
}

describe("sections", () => {
  test("have an owner each, and suit every node but not every agent", () => {
    expect(Object.keys(sectionOwners).sort()).toEqual([...sectionNames].sort());
    for (const name of sectionNames) {
      expect(sectionSuits(name, "Node")).toBe(true);
      expect(sectionSuits(name, "Agent")).toBe(sectionOwners[name].agents);
    }
  });
});
