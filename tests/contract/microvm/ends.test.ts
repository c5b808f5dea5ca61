import { endsContract } from "../ends.ts";
import { MICROVM } from "./backend.ts";

endsContract(MICROVM);
