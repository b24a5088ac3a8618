//! Custom in Rust: adds float32 tensors, which may broadcast. A part of a network becomes a list of additions; the
//! binding lays the tensors between them into scratch memory of the host.

// a copy of the binding, interposer/backend.rs, beside this file
#[path = "backend.rs"]
mod interposer;

use interposer::*;
use std::sync::Mutex;

/// Adds the operands of a layer, which may broadcast to the shape of the sum.
struct Addition {
    shape: Vec<i64>,
    /// How far it is in each operand to the next element along each axis of the sum; 0 if it is broadcast there.
    steps: [Vec<i64>; 2],
}

impl Addition {
    fn of(layer: &Layer) -> Result<Addition> {
        let sum = layer.output(0);
        let steps = |position| match layer.input(position) {
            Some(operand) => Ok(steps_of(&operand, sum.rank())),
            None => Err(layer.unsupported("an operand is absent")),
        };
        Ok(Addition { shape: sum.shape().to_vec(), steps: [steps(0)?, steps(1)?] })
    }

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
    for (axis, &dimension) in operand.shape().iter().enumerate().rev() {
        if dimension != 1 {
            steps[axis + rank - operand.rank()] = size;
        }
        size *= dimension;
    }
    steps
}

/// Receives notifications of networks that a runtime loads. A real backend could open and close a device here.
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
        if layer.type_name() != "Addition" {
            return Verdict::no(format!("{} is not Addition", layer.type_name()), raw::REASON_LAYER_TYPE);
        }
        if layer.output(0).dtype() != raw::DTYPE_FLOAT32 {
            return Verdict::no("only float32 can be added", raw::REASON_DATA_TYPE);
        }
        Verdict::yes()
    }
    fn kernel(&self, layer: &Layer, _options: Attributes) -> Result<Kernel> {
        let addition = Addition::of(layer)?;
        Ok(Box::new(move |inputs, outputs| {
            addition.compute(inputs.data(0)?, inputs.data(1)?, outputs[0].data()?);
            Ok(())
        }))
    }
    fn has_contexts(&self) -> bool {
        true
    }
    fn create_context(&self, _options: Attributes) -> Result<Box<dyn Context>> {
        Ok(Box::new(CustomContext(self.0.lock().unwrap().clone().ok_or("the backend is not ready")?)))
    }
}

export_backend!("Custom", Custom);
