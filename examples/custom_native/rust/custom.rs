//! Custom in Rust: adds float32 tensors, which may broadcast. A part of a network becomes a list of additions; tensors
//! between them lie in scratch memory of the host.

// a copy of the binding, interposer/backend.rs, beside this file
#[path = "backend.rs"]
mod interposer;

use interposer::*;
use std::slice;
use std::sync::Mutex;

const BLOCK: usize = 64;

/// Where a tensor lies while the part runs.
#[derive(Clone, Copy)]
enum Place {
    /// Positions among the inputs, the outputs or the constants.
    Input(usize),
    Output(usize),
    Constant(usize),
    /// Offset in the workspace, in bytes.
    Workspace(usize),
}

/// An addition made ready: where its tensors lie, and of how many elements they are.
struct Addition {
    operands: [(Place, usize); 2],
    sum: (Place, usize),
    shape: Vec<i64>,
    /// How far it is in an operand to the next element along each axis of the sum; 0 where it is broadcast.
    steps: [Vec<i64>; 2],
}

impl Addition {
    fn compute(&self, a: &[f32], b: &[f32], sum: &mut [f32]) {
        let (mut i, mut j, mut at) = (0, 0, vec![0; self.shape.len()]);
        for element in sum {
            *element = a[i as usize] + b[j as usize];
            for axis in (0..self.shape.len()).rev() {
                i += self.steps[0][axis];
                j += self.steps[1][axis];
                at[axis] += 1;
                if at[axis] < self.shape[axis] {
                    break;
                }
                i -= self.shape[axis] * self.steps[0][axis];
                j -= self.shape[axis] * self.steps[1][axis];
                at[axis] = 0;
            }
        }
    }
}

fn steps_of(operand: &TensorInfo, rank: usize) -> Vec<i64> {
    let (mut steps, mut size) = (vec![0; rank], 1);
    for (axis, &extent) in operand.shape().iter().enumerate().rev() {
        if extent != 1 {
            steps[axis + rank - operand.shape().len()] = size;
        }
        size *= extent;
    }
    steps
}

#[derive(Default)]
struct Part {
    additions: Vec<Addition>,
    constants: Vec<Vec<f32>>,
    workspace: usize,
}

impl Part {
    /// Where the tensors lie. Constants are copied, so that the host may let go of them.
    fn places(&mut self, graph: Graph) -> Vec<Place> {
        let mut places = Vec::new();
        for index in 0..graph.tensor_count() {
            places.push(Place::Workspace(self.workspace));
            if let Some(bytes) = graph.tensor(index).constant() {
                places[index] = Place::Constant(self.constants.len());
                let floats = bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]));
                self.constants.push(floats.collect());
            } else if graph.tensor(index).raw.producer >= 0 {
                self.workspace += (graph.tensor(index).elements().unwrap() * 4 / BLOCK + 1) * BLOCK;
            }
        }
        for (position, &index) in graph.inputs().iter().enumerate() {
            places[index as usize] = Place::Input(position);
        }
        for (position, &index) in graph.outputs().iter().enumerate() {
            places[index as usize] = Place::Output(position);
        }
        places
    }

    fn addition(&self, layer: Layer, places: &[Place]) -> Addition {
        let (a, b, sum) = (layer.input(0).unwrap(), layer.input(1).unwrap(), layer.output(0));
        let rank = sum.shape().len();
        let at = |tensor: i64, info: &TensorInfo| (places[tensor as usize], info.elements().unwrap());
        Addition {
            operands: [at(layer.inputs()[0], &a), at(layer.inputs()[1], &b)],
            sum: at(layer.outputs()[0], &sum),
            shape: sum.shape().to_vec(),
            steps: [steps_of(&a, rank), steps_of(&b, rank)],
        }
    }

    fn data(&self, run: &Run, place: Place) -> *mut f32 {
        match place {
            Place::Input(position) => run.input::<f32>(position).as_ptr() as *mut f32,
            Place::Output(position) => run.output::<f32>(position).as_mut_ptr(),
            Place::Constant(position) => self.constants[position].as_ptr() as *mut f32,
            Place::Workspace(offset) => run.workspace()[offset..].as_mut_ptr().cast(),
        }
    }
}

impl Executable for Part {
    fn execute(&self, run: &Run) -> Result<()> {
        for one in &self.additions {
            // safe, as a sum never lies where one of its operands does
            let of = |(place, count)| unsafe { slice::from_raw_parts(self.data(run, place), count) };
            let sum = unsafe { slice::from_raw_parts_mut(self.data(run, one.sum.0), one.sum.1) };
            one.compute(of(one.operands[0]), of(one.operands[1]), sum);
        }
        Ok(())
    }

    fn workspace_size(&self) -> u64 {
        self.workspace as u64
    }
}

/// What a runtime tells of the networks that it loads. A device would be opened and closed here, for example.
struct CustomContext(Host);

impl CustomContext {
    fn note(&self, what: &str) -> Result<()> {
        self.0.log(raw::LOG_INFO, what);
        Ok(())
    }
}

impl Context for CustomContext {
    fn before_load(&self, _network: i64) -> Result<()> {
        self.note("before_load") // Err(Error::new(raw::REFUSED, "...")) would refuse the network
    }
    fn after_load(&self, _network: i64) -> Result<()> {
        self.note("after_load")
    }
    fn before_unload(&self, _network: i64) -> Result<()> {
        self.note("before_unload")
    }
    fn after_unload(&self, _network: i64) -> Result<()> {
        self.note("after_unload")
    }
}

struct Custom(Mutex<Option<Host>>);

impl Backend for Custom {
    fn new() -> Custom {
        Custom(Mutex::new(None))
    }
    fn info(&self) -> Info {
        let property = |name, value| Property { name, doc: "", value: Value::Bool(value), scope: 0 };
        let properties = vec![property("ConstantTensorsAsInputs", true), property("NonConstWeights", false)];
        let capabilities = raw::CAP_CONCURRENT_EXECUTE | raw::CAP_DETERMINISTIC | raw::CAP_KEEPS_CONSTANTS;
        Info { vendor: "Example", name: "Custom", version: "1.0.0", capabilities, properties, ..Info::default() }
    }
    fn init(&self, host: Host, _options: Attributes) -> Result<()> {
        self.0.lock().unwrap().replace(host);
        Ok(())
    }
    fn support(&self, layer: &Layer, _options: Attributes) -> Verdict {
        if layer.kind() != "Addition" {
            return Verdict::no(raw::REASON_LAYER_TYPE, format!("{} is not Addition", layer.kind()));
        }
        if layer.output(0).dtype() != raw::DTYPE_FLOAT32 {
            return Verdict::no(raw::REASON_DATA_TYPE, "only float32 can be added");
        }
        Verdict::yes()
    }
    fn compile(&self, graph: Graph, _options: Attributes) -> Result<Box<dyn Executable>> {
        let mut part = Part::default();
        let places = part.places(graph);
        part.additions = graph.layers().map(|layer| part.addition(layer, &places)).collect();
        Ok(Box::new(part))
    }
    fn has_contexts(&self) -> bool {
        true
    }
    fn create_context(&self, _options: Attributes) -> Result<Box<dyn Context>> {
        Ok(Box::new(CustomContext(self.0.lock().unwrap().ok_or("the backend is not ready")?)))
    }
}

export_backend!("Custom", Custom);
