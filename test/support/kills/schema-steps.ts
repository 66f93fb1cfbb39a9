import { sql } from "kysely";
import type { SchemaStep } from "../../../src/controller/store/schema.ts";

/** Returns steps of a schema, each of which fails if it ran before or in part, and changes rows. */
export function stepsUntil(count: number): readonly SchemaStep[] {
  return Array.from({ length: count }, (_, at) => ({
    statements: (db, engine) => [
      db.schema.createTable(`step${at}`).addColumn("n", engine.types.integer, (column) => column.primaryKey()),
      db.schema.createView(`rows${at}`).as(db.selectNoFrom(sql.lit(at).as("n"))),
      db.schema.alterTable("meta").addColumn(`step${at}`, engine.types.text),
    ],
  }));
}
