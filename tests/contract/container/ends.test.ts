import { endsContract } from "../ends.ts";
import { CONTAINER } from "./backend.ts";

endsContract(CONTAINER);
