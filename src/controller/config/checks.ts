import { InputError } from "../../errors.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { SECTION_MAX_BYTES, SECTION_MAX_DEPTH, type SectionName } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** Checks the size and depth of a section. @throws {InputError} `invalid-body` */
export function checkSection(section: SectionName, body: JsonObject): void {
  try {
    parseStrictJson(JSON.stringify(body), { maxBytes: SECTION_MAX_BYTES, maxDepth: SECTION_MAX_DEPTH });
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    throw new InputError("invalid-body", `${section}: ${error.message}`, { cause: error, details: { field: section } });
  }
}
