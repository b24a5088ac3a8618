//! A device in Rust that adds float32 tensors of one shape in memory of its own, and whose parts can be saved.

#[path = "INCLUDE/interposer/backend.rs"]
mod interposer;

use interposer::*;
use std::collections::HashMap;
use std::sync::Mutex;

const MEMORY: &str = "Tests/Vault/Cells";

/// The memory of the device: the elements of every tensor by its number.
#[derive(Default)]
struct Cells {
    next: u64,
    tensors: HashMap<u64, Vec<f32>>,
}

static CELLS: Mutex<Option<Cells>> = Mutex::new(None);

fn cells<T>(function: impl FnOnce(&mut Cells) -> T) -> T {
    function(CELLS.lock().unwrap().get_or_insert_with(Cells::default))
}

struct VaultPool {
    sizes: HashMap<u64, usize>,
}

// Nothing can be mapped or exported.
unsafe impl Pool for VaultPool {
    fn acquire(&mut self) -> Result<()> {
        cells(|cells| {
            for (&tensor, &size) in &self.sizes {
                cells.tensors.entry(tensor).or_insert_with(|| vec![f32::NAN; size]);
            }
        });
        Ok(())
    }
    fn give_back(&mut self) -> Result<()> {
        cells(|cells| self.sizes.keys().for_each(|tensor| drop(cells.tensors.remove(tensor))));
        Ok(())
    }
    fn create_tensor(&mut self, factory: usize, info: TensorInfo, _alone: bool) -> Result<u64> {
        assert_eq!(factory, 0);
        let number = cells(|cells| {
            cells.next += 1;
            cells.next
        });
        self.sizes.insert(number, info.elements().ok_or("the shape is unknown")?);
        Ok(number)
    }
    fn destroy_tensor(&mut self, tensor: u64) {
        self.sizes.remove(&tensor);
        cells(|cells| cells.tensors.remove(&tensor));
    }
    fn manage(&mut self, _tensor: u64) -> Result<()> {
        Ok(())
    }
    fn allocate(&mut self, tensor: u64) -> Result<()> {
        let size = self.sizes[&tensor];
        cells(|cells| {
            cells.tensors.entry(tensor).or_insert_with(|| vec![f32::NAN; size]);
            Ok(())
        })
    }
    fn upload(&mut self, source: Tensor, tensor: u64) -> Result<()> {
        let data = source.data::<f32>()?.to_vec();
        cells(|cells| cells.tensors.insert(tensor, data));
        Ok(())
    }
    fn download(&mut self, tensor: u64, mut target: TensorMut) -> Result<()> {
        cells(|cells| Ok(target.data::<f32>()?.copy_from_slice(&cells.tensors[&tensor])))
    }
}

/// Additions of a part: tensors are numbered by their index in the graph.
struct Sums {
    count: usize,
    inputs: Vec<i64>,
    outputs: Vec<i64>,
    steps: Vec<[i64; 3]>,
}

impl Sums {
    fn of(graph: Graph) -> Sums {
        let step = |layer: Layer| [layer.inputs()[0], layer.inputs()[1], layer.outputs()[0]];
        Sums {
            count: graph.tensor_count(),
            inputs: graph.inputs().to_vec(),
            outputs: graph.outputs().to_vec(),
            steps: graph.layers().map(step).collect(),
        }
    }
    fn numbers(&self) -> Vec<i64> {
        let lists = [&self.inputs, &self.outputs];
        let mut numbers = vec![self.count as i64, self.inputs.len() as i64, self.outputs.len() as i64];
        lists.iter().for_each(|list| numbers.extend(list.iter()));
        self.steps.iter().for_each(|step| numbers.extend(step));
        numbers
    }
    fn from_numbers(numbers: &[i64]) -> Option<Sums> {
        let (head, rest) = (numbers.get(..3)?, &numbers[3..]);
        let (inputs, rest) = (rest.get(..head[1] as usize)?, rest.get(head[1] as usize..)?);
        let (outputs, rest) = (rest.get(..head[2] as usize)?, rest.get(head[2] as usize..)?);
        let steps = rest.chunks(3).map(|step| step.try_into().ok()).collect::<Option<Vec<[i64; 3]>>>()?;
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        Some(Sums { count: head[0] as usize, inputs, outputs, steps })
    }
}

impl Executable for Sums {
    fn execute(&self, run: &Run) -> Result<()> {
        let mut tensors: Vec<Vec<f32>> = vec![Vec::new(); self.count];
        for (position, &index) in self.inputs.iter().enumerate() {
            tensors[index as usize] = match run.input_handle(position) {
                Some(tensor) => cells(|cells| cells.tensors[&tensor].clone()),
                None => run.input(position)?.data::<f32>()?.to_vec(),
            };
        }
        for step in &self.steps {
            let (a, b) = (&tensors[step[0] as usize], &tensors[step[1] as usize]);
            tensors[step[2] as usize] = a.iter().zip(b).map(|(a, b)| a + b).collect();
        }
        for (position, &index) in self.outputs.iter().enumerate() {
            let sum = std::mem::take(&mut tensors[index as usize]);
            match run.output_handle(position) {
                Some(tensor) => drop(cells(|cells| cells.tensors.insert(tensor, sum))),
                None => run.output(position)?.data::<f32>()?.copy_from_slice(&sum),
            }
        }
        Ok(())
    }
    fn save(&self) -> Result<Blob> {
        let data = self.numbers().iter().flat_map(|number| number.to_le_bytes()).collect();
        Ok(Blob { data, flags: 0 })
    }
}

struct Vault;

impl Backend for Vault {
    fn new() -> Vault {
        Vault
    }
    fn info(&self) -> Info {
        let capabilities = raw::CAP_DETERMINISTIC | raw::CAP_KEEPS_CONSTANTS;
        Info { vendor: "Tests", name: "Vault", version: "1", capabilities, ..Info::default() }
    }
    fn support(&self, layer: &Layer, _options: Attributes) -> Verdict {
        let out = layer.output(0);
        let fits = |info: TensorInfo| info.shape() == out.shape() && info.rank() > 0 && !info.is_constant();
        let fit = (0..2).all(|position| layer.input(position).map_or(false, fits));
        if layer.type_name() != "Addition" || out.dtype() != raw::DTYPE_FLOAT32 || !fit {
            return Verdict::no("only additions of float32 tensors of one shape", raw::REASON_OTHER);
        }
        Verdict::yes()
    }
    fn compile(&self, graph: Graph, _options: Attributes) -> Result<Box<dyn Executable>> {
        Ok(Box::new(Sums::of(graph)))
    }
    fn has_blobs(&self) -> bool {
        true
    }
    fn fingerprint(&self, _options: Attributes) -> Result<String> {
        Ok("vault 1".into())
    }
    fn check(&self, data: &[u8], _options: Attributes) -> Result<()> {
        if data.len() % 8 == 0 { Ok(()) } else { Err(Error::new("the bytes are no numbers", raw::CORRUPT)) }
    }
    fn restore(&self, data: &[u8], _graph: Option<Graph>, _options: Attributes) -> Result<Box<dyn Executable>> {
        let numbers: Vec<i64> = data.chunks_exact(8).map(|eight| i64::from_le_bytes(eight.try_into().unwrap())).collect();
        let sums = Sums::from_numbers(&numbers).ok_or_else(|| Error::new("the numbers make no part", raw::CORRUPT))?;
        Ok(Box::new(sums))
    }
    fn has_handles(&self) -> bool {
        true
    }
    fn describe(&self, _options: Attributes) -> Result<Factories> {
        let factory = Factory { id: MEMORY.into(), flags: raw::FACTORY_DEVICE_COPIES, import_kinds: 0, export_kinds: 0 };
        Ok(Factories { factories: vec![factory], preferences: vec![MEMORY.into()] })
    }
    fn create_pool(&self, _options: Attributes) -> Result<Box<dyn Pool>> {
        Ok(Box::new(VaultPool { sizes: HashMap::new() }))
    }
}

export_backend!("Vault", Vault);
