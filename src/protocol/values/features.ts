import { z } from "zod";
import { Text64 } from "./values.ts";

/** Features a document or an item needs; a node that lacks one refuses it as `not-supported`. */
export const Requires = z.array(Text64).max(64).optional();

/** Features this build understands when a document or an item requires them. */
export const KNOWN_FEATURES: ReadonlySet<string> = new Set();
